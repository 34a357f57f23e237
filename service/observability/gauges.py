"""Prometheus gauges that are computed at each scrape."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

Gauges = Mapping[str, tuple[str, Sequence[str]]]
"""{name: (help text, names of the labels)}, in the order of the page."""
Sample = tuple[str, Sequence[str], float]
"""(name of the gauge, values of its labels, value)"""


def families(gauges: Gauges, samples: Iterable[Sample] = ()) -> list[Metric]:
    """Return all gauges with their samples, even those without any."""
    made = {name: GaugeMetricFamily(name, text, labels=labels) for name, (text, labels) in gauges.items()}
    for name, labels, value in samples:
        made[name].add_metric(labels, value)
    return list(made.values())


class LiveGauges(Collector):
    """Collects gauges with their values at the scrape."""

    def __init__(self, gauges: Gauges, samples: Callable[[], Iterable[Sample]]) -> None:
        self._gauges = gauges
        self._samples = samples

    def describe(self) -> list[Metric]:
        """Name the metrics without values."""
        return families(self._gauges)

    def collect(self) -> list[Metric]:
        """Return the metrics as of now."""
        return families(self._gauges, self._samples())
