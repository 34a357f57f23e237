"""What a session costs between two moments: only what was used between them, CPU by deliveries, bytes by rows."""

import pytest

from benchmarks.pipeline.cost import Used, costs


def test_only_what_was_used_between_the_moments_counts() -> None:
    begin = Used(10.0, 100, 200, {"job": 5.0, "kafka": 7.0}, 1e6, 2e6)
    end = Used(15.0, 1_100, 700, {"job": 6.0, "kafka": 7.5}, 1.5e6, 2.25e6)
    assert costs(begin, end) == pytest.approx(
        {"sessions_s": 200.0, "cpu_job": 1_000.0, "cpu_kafka": 500.0, "wal": 1_000.0, "stored": 500.0}
    )
