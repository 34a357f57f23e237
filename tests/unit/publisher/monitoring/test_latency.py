"""The latency that Prometheus is told is that of the sessions that went out, and of nothing that is no latency."""

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from publisher.monitoring import latency
from publisher.monitoring.latency import RowTimes
from publisher.monitoring.metrics import REGISTRY
from service.observability.bulk_histogram import BulkHistogram


def samples(collector: Collector) -> dict[str, float]:
    """{name, with the bound of a bucket: value} of the latencies."""
    families: list[Metric] = list(collector.collect())
    return {
        f"{sample.name}{sample.labels.get('le', '')}": sample.value
        for family in families
        for sample in family.samples
        if "delivered_seconds" in sample.name or "untimed" in sample.name
    }


def test_a_bucket_holds_what_is_not_above_its_bound_and_all_below_it() -> None:
    histogram = BulkHistogram("x_delivered_seconds", "x", (0.5, 1), CollectorRegistry())
    histogram.observe_all([0.25, 0.5, 0.75, 1, 4])
    histogram.observe_all([])
    histogram.observe_all([0.5])
    found = samples(histogram)
    assert found == {
        "x_delivered_seconds_bucket0.5": 3,
        "x_delivered_seconds_bucket1.0": 5,
        "x_delivered_seconds_bucket+Inf": 6,
        "x_delivered_seconds_count": 6,
        "x_delivered_seconds_sum": 7,
    }


def test_each_session_counts_once_from_its_end_event_and_from_its_batch_s_commit() -> None:
    before = samples(REGISTRY)
    now_s = 1_800_000_000.0
    day_ms = 86_400_000
    ended_ms = [int(now_s * 1000) - 400, int(now_s * 1000) - 700, int(now_s * 1000) - 2 * day_ms]
    latency.delivered([RowTimes(now_s - 0.25, ended_ms[:1]), RowTimes(now_s - 0.25, ended_ms[1:])], now_s)
    changed = {name: value - before[name] for name, value in samples(REGISTRY).items()}
    assert changed["outbox_end_to_delivered_seconds_count"] == 2
    assert changed["outbox_end_to_delivered_seconds_bucket0.5"] == 1
    assert changed["outbox_end_to_delivered_seconds_sum"] == pytest.approx(1.1)
    assert changed["outbox_commit_to_delivered_seconds_bucket0.2"] == 0
    assert changed["outbox_commit_to_delivered_seconds_bucket0.3"] == 3
    # The one of two days ago is counted, but measures nothing.
    assert changed["outbox_untimed_sessions_total"] == 1


@pytest.mark.parametrize(("ahead_s", "timed"), [(4, 1), (6, 0)])
def test_a_producer_s_clock_may_be_a_little_ahead(ahead_s: int, timed: int) -> None:
    before = samples(REGISTRY)
    latency.delivered([RowTimes(99.0, [(100 + ahead_s) * 1000])], 100.0)
    changed = {name: value - before[name] for name, value in samples(REGISTRY).items()}
    assert changed["outbox_end_to_delivered_seconds_count"] == timed
    assert changed["outbox_untimed_sessions_total"] == 1 - timed
