"""What samples of a run say: CPU by its input events, and how long a batch takes."""

from datetime import UTC, datetime, timedelta

import pytest

from benchmarks.pipeline.progress import Cpu, Sample, batch_s, cpu_us


def samples(*delivered: int) -> list[Sample]:
    """One each second; 100 input events for a session, and 1 s of the JVM, 0.5 of workers, 0.1 of the driver in each second."""
    return [
        Sample(float(at), count, 100 * count, Cpu(driver=0.1 * at, jvm=1.0 * at, workers=0.5 * at))
        for at, count in enumerate(delivered)
    ]


def test_cpu_is_by_input_event_and_process() -> None:
    _, _, begin, _, end = samples(0, 0, 300, 600, 900)
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
