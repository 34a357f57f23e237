"""A Prometheus histogram that takes many observations at once: one sort and one lock for all of them."""

import threading
from bisect import bisect_right
from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector


class BulkHistogram(Collector):
    """A histogram without labels. Thread-safe."""

    def __init__(self, name: str, text: str, bounds: Sequence[float], registry: CollectorRegistry) -> None:
        """`bounds`: the ascending upper bounds, each inclusive; the bucket without a bound is added."""
        self._name, self._text = name, text
        self._bounds = [*bounds, float("inf")]
        self._lock = threading.Lock()
        self._counts = [0] * len(self._bounds)  # up to each bound, as Prometheus has them
        self._sum = 0.0
        registry.register(self)

    def observe_all(self, values: Iterable[float]) -> None:
        """Observe each value."""
        ascending = sorted(values)
        up_to = [bisect_right(ascending, bound) for bound in self._bounds]
        with self._lock:
            self._counts = [before + more for before, more in zip(self._counts, up_to, strict=True)]
            self._sum += sum(ascending)

    def describe(self) -> list[Metric]:
        """Name the metric without values."""
        return [HistogramMetricFamily(self._name, self._text)]

    def collect(self) -> list[Metric]:
        """Return the metric as of now."""
        with self._lock:
            counts, total = self._counts, self._sum
        buckets = [(_shown(bound), count) for bound, count in zip(self._bounds, counts, strict=True)]
        return [HistogramMetricFamily(self._name, self._text, buckets=buckets, sum_value=total)]


def _shown(bound: float) -> str:
    return "+Inf" if bound == float("inf") else str(float(bound))
