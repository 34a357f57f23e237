"""What samples of a run say of its speed: of the warm part alone, and by the input events of that part."""

from datetime import UTC, datetime, timedelta

import pytest

from benchmarks.pipeline.progress import Cpu, Sample, batch_s, cpu_us, sessions_per_s, warm


def samples(*delivered: int) -> list[Sample]:
    """One each second; 100 input events for a session, and 1 s of the JVM, 0.5 of workers, 0.1 of the driver in each second."""
    return [
        Sample(float(at), count, 100 * count, Cpu(driver=0.1 * at, jvm=1.0 * at, workers=0.5 * at))
        for at, count in enumerate(delivered)
    ]


def test_the_warm_part_begins_when_a_third_is_delivered_and_ends_with_the_last_session() -> None:
    begin, end = warm(samples(0, 0, 10, 300, 600, 900, 900), 900)
    assert (begin.at_s, end.at_s) == (3.0, 5.0)
    assert sessions_per_s(begin, end) == 300.0


def test_a_slow_start_does_not_change_what_is_warm() -> None:
    slow = warm(samples(0, 0, 0, 0, 0, 300, 600, 900), 900)
    quick = warm(samples(0, 300, 600, 900), 900)
    assert sessions_per_s(*slow) == sessions_per_s(*quick)


@pytest.mark.parametrize("delivered", [(0, 900), (0, 10, 900)])
def test_a_backlog_that_was_delivered_at_once_is_refused(delivered: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="too few"):
        warm(samples(*delivered), 900)


def test_cpu_is_by_input_event_and_process() -> None:
    begin, end = warm(samples(0, 0, 300, 600, 900), 900)
    assert cpu_us(begin, end) == pytest.approx(
        {
            "cpu_us_driver": 1e6 * 0.2 / 60_000,
            "cpu_us_jvm": 1e6 * 2.0 / 60_000,
            "cpu_us_workers": 1e6 * 1.0 / 60_000,
            "cpu_us_total": 1e6 * 3.2 / 60_000,
        }
    )


def test_a_batch_takes_the_median_time_from_commit_to_commit() -> None:
    began = datetime(2026, 1, 1, tzinfo=UTC)
    commits = [began + timedelta(milliseconds=at) for at in (0, 140, 300, 2_000, 2_150)]
    assert batch_s(commits) == pytest.approx(0.155)


def test_a_batch_time_needs_batches() -> None:
    began = datetime(2026, 1, 1, tzinfo=UTC)
    with pytest.raises(ValueError, match="only 2 batches"):
        batch_s([began, began])
