"""What an attempt leaves to the next one when it ends."""

import contextlib
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import KafkaError, KafkaException

from service.errors import BatchTooLargeError, UnavailableError, WorkerDiedError
from service.settings import Settings
from spark_job import job
from spark_job.input.offsets import Offsets
from spark_job.ledger import ownership, runs
from spark_job.ledger.batch_size import BatchSize, next_size

MOST = 100_000


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is recorded of the ends of runs."""
    found: list[str] = []
    monkeypatch.setattr(ownership, "release", lambda _postgres, _run_id, because: found.append(because))
    return found


def size_after(error: BaseException, attempts: int, ended: list[str]) -> int:
    """Let attempts fail; return how many events a batch of the next one has."""
    begun: list[tuple[int, str, dict[str, Any], int]] = []
    rows: Any = SimpleNamespace(
        execute=lambda *_: SimpleNamespace(fetchall=lambda: [*reversed(begun)])
    )  # of outbox.run, the newest first
    for attempt in range(1, attempts + 2):
        size = next_size(runs.sizes(rows, Offsets(), attempt), MOST)
        if attempt > attempts:
            return size.max_events
        with contextlib.suppress(type(error)), ExitStack() as cleanup:
            cleanup.push(partial(job._end, Settings(), uuid4(), size))
            raise error
        begun.append((size.max_events, ended[-1], {}, attempt))
    raise AssertionError


@pytest.mark.guarantee(118)
@pytest.mark.parametrize(
    "outage",
    [
        UnavailableError("the schema registry at http://r does not answer: ConnectError: refused"),
        KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN)),
        psycopg.OperationalError("server closed the connection unexpectedly"),
    ],
    ids=["registry", "Kafka", "Postgres"],
)
def test_an_outage_makes_no_batch_smaller_however_many_attempts_it_lasts(
    outage: BaseException, ended: list[str]
) -> None:
    assert size_after(outage, 20, ended) == MOST
    assert len(ended) == 20
    assert not [text for text in ended if "batches of at most" in text]


@pytest.mark.guarantee(118)
@pytest.mark.parametrize("of_size", [BatchTooLargeError, WorkerDiedError, MemoryError])
def test_a_failure_of_size_is_recorded_with_the_size_and_makes_the_next_batches_smaller(
    of_size: Callable[[str], BaseException], ended: list[str]
) -> None:
    assert size_after(of_size("x"), 2, ended) == MOST // 16
    assert ["batches of at most" in text for text in ended] == [True, True]
    assert ended[0].partition(": ")[2].startswith(f"batches of at most {MOST} events: ")


def test_a_failure_after_a_full_batch_is_recorded_without_its_size(ended: list[str]) -> None:
    size = BatchSize(MOST, MOST)
    size.committed(MOST)
    job._end(Settings(), uuid4(), size, None, BatchTooLargeError("x"), None)
    assert ended == ["BatchTooLargeError: x"]
    job._end(Settings(), uuid4(), BatchSize(MOST, MOST), None, None, None)
    assert ended[1:] == [runs.STOPPED]
