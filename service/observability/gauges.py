"""Prometheus gauges that are put together when somebody asks for them."""

from collections.abc import Iterable, Mapping, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric

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
