"""A latency begins when the broker had the end event: nothing that a producer writes makes it shorter, and nothing is left out."""

import math

import pytest

from benchmarks.suite.load.latencies import SentEnd, first_after, latencies, percentile

ALWAYS = (0.0, 1e12)


def sent_at(*moments: float, early: float = 0.0) -> dict[bytes, SentEnd]:
    """Sessions b"0", b"1", ...: acknowledged at these moments, stamped so many seconds later."""
    return {b"%d" % n: SentEnd(at + early, at) for n, at in enumerate(moments)}


def received_after(sent: dict[bytes, SentEnd], *seconds: float) -> dict[bytes, float]:
    """When each was received: so long after its acknowledgement."""
    return {key: sent[key].acked_s + late for key, late in zip(sent, seconds, strict=False)}


def test_known_times_give_known_percentiles() -> None:
    sent = sent_at(*(1_000.0 + n for n in range(200)))
    found = latencies(sent, received_after(sent, *((n + 1) / 100 for n in range(200))), ALWAYS)
    assert (found.sessions, found.missing) == (200, 0)
    assert [found.p50, found.p90, found.p99, found.greatest] == pytest.approx([1.0, 1.8, 1.98, 2.0])


def test_the_order_of_sending_and_receiving_does_not_matter() -> None:
    sent = sent_at(50.0, 20.0, 90.0)
    found = latencies(sent, {b"2": 90.3, b"0": 50.1, b"1": 20.2}, ALWAYS)
    assert [found.p50, found.greatest] == pytest.approx([0.2, 0.3])


def test_a_single_session_is_all_percentiles() -> None:
    found = latencies(sent_at(7.0), {b"0": 7.25}, ALWAYS)
    assert found.p50 == found.p90 == found.p99 == found.greatest == pytest.approx(0.25)


def test_records_stamped_in_the_future_do_not_make_the_latency_smaller() -> None:
    honest, early = sent_at(10.0, 11.0, 12.0), sent_at(10.0, 11.0, 12.0, early=0.48)
    received = received_after(honest, 0.6, 0.7, 0.8)
    assert latencies(early, received, ALWAYS) == latencies(honest, received, ALWAYS)


def test_the_broker_s_own_stamp_counts_where_the_acknowledgement_came_later() -> None:
    sent = {b"0": SentEnd(stamp_s=10.0, acked_s=10.05)}
    assert latencies(sent, {b"0": 10.3}, ALWAYS).p50 == pytest.approx(0.3)


def test_a_session_that_never_came_is_infinitely_late_and_counted() -> None:
    sent = sent_at(*(float(n) for n in range(100)))
    found = latencies(sent, received_after(sent, *(0.5 for _ in range(98))), ALWAYS)
    assert (found.sessions, found.missing) == (100, 2)
    assert found.p90 == pytest.approx(0.5)
    assert math.isinf(found.p99)
    assert math.isinf(found.greatest)


def test_only_what_ended_within_the_window_is_measured_whenever_it_came() -> None:
    sent = sent_at(9.9, 10.0, 19.9, 20.0)
    found = latencies(sent, received_after(sent, 5.0, 1.0, 2.0, 5.0), (10.0, 20.0))
    assert found.sessions == 2
    assert [found.p50, found.greatest] == pytest.approx([1.0, 2.0])


def test_outputs_of_other_sessions_are_not_counted() -> None:
    assert latencies(sent_at(10.0), {b"0": 10.4, b"of a run before": 3.0}, ALWAYS).sessions == 1


def test_two_clocks_that_disagree_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"received 0\.300 s before Kafka had its end"):
        latencies(sent_at(10.0), {b"0": 9.7}, ALWAYS)


def test_a_window_without_sessions_is_an_error() -> None:
    with pytest.raises(ValueError, match="no session ended"):
        latencies(sent_at(10.0), {b"0": 10.4}, (20.0, 30.0))


@pytest.mark.parametrize(
    ("percent", "expected"), [(1, 1), (20, 1), (21, 2), (50, 3), (80, 4), (99, 5), (100, 5)]
)
def test_a_percentile_is_the_smallest_value_with_so_many_at_or_below_it(
    percent: float, expected: float
) -> None:
    assert percentile([1, 2, 3, 4, 5], percent) == expected


def test_after_a_kill_only_sessions_that_ended_later_count() -> None:
    sent = sent_at(99.0, 101.0, 103.0)
    received = {b"0": 104.0, b"1": 109.0, b"2": 108.5}
    assert first_after(100.0, sent, received) == 108.5
    assert first_after(100.0, sent, {b"0": 104.0}) is None
