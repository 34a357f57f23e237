"""The bound on the backlog counts what lies behind the slowest lane, holds the job back, and lets go by itself."""

import threading
from collections.abc import Iterator

import psycopg
import pytest
from psycopg.rows import TupleRow

from service.settings import JobSettings
from spark_job import OutputEvent
from spark_job.ledger import ownership
from spark_job.monitoring.health import JobHealth
from spark_job.sink import backpressure
from spark_job.sink.backpressure import Backlog, BacklogReader, Backpressure
from tests.support.sink.batches import SinkRun, session
from tests.support.waiting import wait_until

LANES = 4  # as SinkRun opens the epoch
VALUE = b"12345678"


@pytest.fixture
def sink_run(database: str) -> Iterator[SinkRun]:
    """Three batches of one session with two outputs each."""
    with psycopg.connect(database, autocommit=True) as connection:
        sink_run = SinkRun(connection)
        for n in range(3):
            sink_run.plan(n, (10 * n, 0), (10 * n + 10, 0))
            outputs = [OutputEvent("t", VALUE), OutputEvent("t", VALUE)]
            sink_run.write(n, session(f"key-{n}", 10 * n, 10 * n + 9, outputs))
        yield sink_run


def advance(
    connection: psycopg.Connection[TupleRow], batch: int, key: str | None = None, lanes: int = LANES
) -> None:
    """Let the first `lanes` lanes of epoch 1 have got to this cursor."""
    connection.execute(
        "INSERT INTO outbox.lane (epoch, lane, cursor_batch, cursor_key, cursor_commit_id)"
        " SELECT 1, n, %s, %s, gen_random_uuid() FROM generate_series(0, %s) n"
        " ON CONFLICT (epoch, lane) DO UPDATE SET cursor_batch = excluded.cursor_batch, cursor_key = excluded.cursor_key",
        (batch, key, lanes - 1),
    )


def events(sink_run: SinkRun) -> int:
    return BacklogReader(sink_run.connection).read().events


def test_all_of_it_waits_while_no_publisher_has_run(sink_run: SinkRun) -> None:
    found = BacklogReader(sink_run.connection).read()
    assert found.events == 6
    assert found.bytes >= 6 * len(VALUE)


@pytest.mark.guarantee(104)
def test_the_slowest_lane_counts(sink_run: SinkRun) -> None:
    advance(sink_run.connection, 3, lanes=LANES - 1)
    assert events(sink_run) == 6, "one lane has not begun"
    advance(sink_run.connection, 2)
    assert events(sink_run) == 2
    advance(sink_run.connection, 3, "key-1")
    assert events(sink_run) == 2, "a batch counts until all of it is through"
    advance(sink_run.connection, 3)
    assert BacklogReader(sink_run.connection).read() == Backlog(0, 0)


def test_a_look_adds_up_what_has_changed_since_the_last_one(
    sink_run: SinkRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backlog of a week has millions of batches, and the job looks before each commit."""
    monkeypatch.setattr(backpressure, "_FEW_BATCHES", 0)
    reader = BacklogReader(sink_run.connection)
    ranges: list[tuple[int, int]] = []
    between = reader._between

    def noted(after: int, to: int) -> Backlog:
        ranges.append((after, to))
        return between(after, to)

    monkeypatch.setattr(reader, "_between", noted)

    def look() -> list[tuple[int, int]]:
        ranges.clear()
        assert reader.read() == BacklogReader(sink_run.connection).read()
        return [(after, to) for after, to in ranges if after < to]

    assert look() == [(0, 3)]
    assert look() == []
    sink_run.plan(3, (30, 0), (40, 0))
    sink_run.write(3, session("key-3", 30, 39, [OutputEvent("t", VALUE)]))
    assert look() == [(3, 4)]
    advance(sink_run.connection, 2)
    assert look() == [(0, 2)]
    advance(sink_run.connection, 1)  # `publisher resume` to an earlier batch
    assert look() == [(1, 2)]
    advance(sink_run.connection, 4)
    assert look() == []


def test_an_epoch_that_is_through_does_not_count(sink_run: SinkRun) -> None:
    sink_run.connection.execute("INSERT INTO outbox.lane_epoch (epoch, from_batch, lanes) VALUES (2, 3, 1)")
    advance(sink_run.connection, 1)
    assert events(sink_run) == 4
    advance(sink_run.connection, 2)
    assert events(sink_run) == 2, "the new epoch's lane stands before its first batch"


@pytest.mark.guarantee(104)
@pytest.mark.parametrize(
    ("settings", "because"),
    [
        (JobSettings(max_backlog_events=5), "max_backlog_events is 5"),
        (JobSettings(max_backlog_bytes=5 * len(VALUE)), f"max_backlog_bytes is {5 * len(VALUE)}"),
    ],
)
def test_the_job_is_held_back_says_so_and_continues_by_itself(
    sink_run: SinkRun, database: str, settings: JobSettings, because: str
) -> None:
    held = Backpressure(sink_run.connection, sink_run.run_id, settings, JobHealth())
    waiting = threading.Thread(target=held.wait, args=(lambda: False,))
    with psycopg.connect(database, autocommit=True) as observer:
        waiting.start()
        wait_until(
            lambda: ownership.read_owner(observer).held_back_since is not None, "a job that is held back", 30
        )
        assert because in (ownership.read_owner(observer).held_back_because or "")
        advance(observer, 2)
        waiting.join(timeout=30)
        assert not waiting.is_alive()
        assert ownership.read_owner(observer).held_back_since is None


def test_a_stop_ends_the_wait(sink_run: SinkRun) -> None:
    Backpressure(sink_run.connection, sink_run.run_id, JobSettings(max_backlog_events=1), JobHealth()).wait(
        lambda: True
    )


def test_without_a_bound_nothing_is_asked(sink_run: SinkRun) -> None:
    sink_run.connection.close()
    Backpressure(sink_run.connection, sink_run.run_id, JobSettings(), JobHealth()).wait(lambda: False)
