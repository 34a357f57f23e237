"""What something cost between two moments: CPU by part and input event, bytes by session written."""

import os

import pytest

from benchmarks.suite.load.usage import MemoryPeaks, Written, cpu_s, cpu_us


def test_cpu_is_by_part_and_input_event_and_only_what_was_used_between() -> None:
    found = cpu_us({"job": 5.0, "kafka": 7.0}, {"job": 6.0, "kafka": 7.5, "late": 0.1}, 1_000_000)
    assert found == pytest.approx({"cpu_job": 1.0, "cpu_kafka": 0.5, "cpu_late": 0.1})


def test_what_postgres_wrote_is_by_session_in_the_ledger() -> None:
    found = Written(1.5e6, 2.25e6, 700).of_a_session(Written(1e6, 2e6, 200))
    assert found == {"wal_bytes": 1_000.0, "stored_bytes": 500.0}


def test_without_a_session_there_is_no_cost_of_one() -> None:
    with pytest.raises(ValueError, match="no session was written"):
        Written(2.0, 2.0, 5).of_a_session(Written(1.0, 1.0, 5))


def test_this_process_uses_cpu_and_memory() -> None:
    parts = {"here": [os.getpid()]}
    assert cpu_s(parts)["here"] > 0
    memory = MemoryPeaks()
    memory.look(parts)
    first = memory.measured()["memory_here"]
    memory.look({"here": []})
    assert memory.measured() == {"memory_here": first}
    assert first > 1
