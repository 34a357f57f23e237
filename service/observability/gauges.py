"""Prometheus gauges that are put together when somebody asks for them."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

Gauges = Mapping[str, tuple[str, Sequence[str]]]
"""{name: (help text, names of the labels)}, in the order in which they are shown."""
Sample = tuple[str, Sequence[str], float]
"""(name of the gauge, values of its labels, value)"""


def families(gauges: Gauges, samples: Iterable[Sample] = ()) -> list[Metric]:
    """Return the gauges with these samples, also those without any."""
    made = {name: GaugeMetricFamily(name, text, labels=labels) for name, (text, labels) in gauges.items()}
    for name, labels, value in samples:
        made[name].add_metric(labels, value)
    return list(made.values())


class LiveGauges(Collector):
    """Gauges with the values of the moment at which they are asked for."""

    def __init__(self, gauges: Gauges, samples: Callable[[], Iterable[Sample]]) -> None:
        self._gauges = gauges
        self._samples = samples

    def describe(self) -> list[Metric]:
        """Name the metrics without values."""
        return families(self._gauges)

    def collect(self) -> list[Metric]:
        """Return the metrics as of now."""
        return families(self._gauges, self._samples())
