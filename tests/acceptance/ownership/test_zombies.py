"""One run writes: a driver that was stopped and wakes up behind its successor, and drivers that start at the same instant."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from service.errors import FencedError
from service.settings import JobSettings
from spark_job.ledger import ownership
from tests.support.pipeline.pipeline import Pipeline
from tests.support.processes.service import Service
from tests.support.waiting import wait_until

REPETITIONS = 10
FENCED = 4
UNAVAILABLE = 6
TIMEOUT_S = 600.0
POINTS = {"between batches": "query.before_action", "Spark's action": "task.after_assembly"}


def stop_driver(job: Service) -> None:
    """SIGSTOP to the one process that was started; its JVM and the Python workers continue."""
    os.kill(job.pid, signal.SIGSTOP)


@pytest.mark.guarantee(26)
@pytest.mark.faults
@pytest.mark.timeout(2_400)
@pytest.mark.parametrize(
    "stop", [stop_driver, Service.pause], ids=["driver alone", "driver, JVM and workers"]
)
def test_a_driver_that_wakes_up_behind_its_successor_writes_nothing_and_says_why(
    pipeline: Pipeline, stop: Callable[[Service], None]
) -> None:
    pipeline.publisher.start()
    with pipeline.load(31, sessions_per_second=10):
        pipeline.job.start(**pipeline.armed)
        for stage in (*POINTS, "the transaction"):
            old = pipeline.job
            pipeline.wait_until(lambda: pipeline.batches() > 0, "a batch", timeout_s=TIMEOUT_S, alive=(old,))
            stop_at(pipeline, stage, stop)
            new = take_over(pipeline)
            wrote = written_by(pipeline, old.pid)
            old.resume()
            assert old.wait(TIMEOUT_S) == FENCED, (stage, old.tail())
            reason = "taken this outbox over", "no longer owns the outbox"
            assert any(text in old.log() for text in reason), (stage, old.tail())
            assert written_by(pipeline, old.pid) == wrote, stage
            assert pipeline.owns(new)
    expected = pipeline.expectation()
    pipeline.complete(expected)
    pipeline.stop()
    # Among the rest: no run has written after another one had.
    pipeline.assert_exactly_once(expected)
    assert len(pipeline.generations()) == 1


@pytest.mark.parametrize("repetition", range(REPETITIONS))
def test_of_two_runs_that_take_an_empty_outbox_at_the_same_instant_one_wins_and_the_other_names_it(
    database: str, repetition: int
) -> None:
    runs = [uuid4(), uuid4()]
    refusals: dict[UUID, str] = {}

    def start(run_id: UUID) -> None:
        with psycopg.connect(database, options="-c role=outbox_writer") as connection:
            try:
                ownership.take_over(connection, run_id, JobSettings(), force=False)
            except FencedError as error:
                refusals[run_id] = str(error)

    with psycopg.connect(database, autocommit=True) as observer:
        threads = [threading.Thread(target=start, args=(run_id,)) for run_id in runs]
        with writer_lock(database):
            # Both have seen that nobody owns it.
            for thread in threads:
                thread.start()
            wait_until(lambda: waiting_for_the_lock(observer) == 2, "two runs that wait for the writer lock")
        for thread in threads:
            thread.join()
        winner = ownership.read_owner(observer).run_id
    assert winner in runs
    (loser,) = set(runs) - {winner}
    assert list(refusals) == [loser]
    assert f"run {winner} (pid {os.getpid()} on " in refusals[loser]


@pytest.mark.guarantee(26)
def test_of_two_jobs_started_at_the_same_instant_one_works_and_the_other_names_it(pipeline: Pipeline) -> None:
    jobs = [pipeline.job, pipeline.another_job()]
    pipeline.feed(32, sessions=50)
    pipeline.publisher.start()
    with psycopg.connect(pipeline.dsn, autocommit=True) as observer, writer_lock(pipeline.dsn):
        for job in jobs:
            # The first one waits here for the start of the second.
            job.start(OUTBOX_POSTGRES__LOCK_TIMEOUT_MS="600000")
        pipeline.wait_until(
            lambda: waiting_for_the_lock(observer) == 2,
            "two jobs that wait for the writer lock",
            timeout_s=TIMEOUT_S,
            alive=(jobs[0], jobs[1]),
        )
    pipeline.wait_until(
        lambda: not all(job.is_alive() for job in jobs), "the end of one of them", timeout_s=TIMEOUT_S
    )
    (loser,) = [job for job in jobs if not job.is_alive()]
    (pipeline.job,) = [job for job in jobs if job is not loser]
    assert loser.wait(TIMEOUT_S) == FENCED, loser.tail()
    assert f"pid {pipeline.job.pid} on " in loser.log()
    assert pipeline.owns(pipeline.job)
    expected = pipeline.expectation()
    pipeline.complete(expected)
    pipeline.stop()
    pipeline.assert_exactly_once(expected)
    assert len(pipeline.generations()) == 1


def stop_at(pipeline: Pipeline, stage: str, stop: Callable[[Service], None]) -> None:
    """Stop the job there. What held it lets it continue at once: it stands still by the signal alone."""
    with pipeline.held_up_batch() if stage == "the transaction" else pipeline.held_at(POINTS[stage]):
        stop(pipeline.job)


def take_over(pipeline: Pipeline) -> Service:
    """Start a successor once the owner counts as dead; return it when it has written."""
    pipeline.wait_for_dead_owner()
    new = pipeline.another_job()
    new.start(**pipeline.armed)
    pipeline.job = new

    def has_written() -> int:
        if not new.is_alive():
            # A broker that is slow to answer ends a start, as anywhere; a supervisor tries again.
            assert new.wait(TIMEOUT_S) == UNAVAILABLE, new.tail()
            new.start(**pipeline.armed)
        return written_by(pipeline, new.pid)

    pipeline.wait_until(has_written, "a batch of the new run", timeout_s=TIMEOUT_S)
    return new


def written_by(pipeline: Pipeline, pid: int) -> int:
    """Batches that the runs of a process have written."""
    return int(
        pipeline.ask("SELECT count(*) FROM outbox.batch JOIN outbox.run USING (run_id) WHERE pid = %s", pid)[
            0
        ][0]
    )


@contextmanager
def writer_lock(dsn: str) -> Iterator[None]:
    """Hold the writer lock within the block."""
    with psycopg.connect(dsn) as holder:
        holder.execute("SELECT outbox.lock_writer()")
        yield


def waiting_for_the_lock(observer: psycopg.Connection[Any]) -> int:
    """How many backends of this database wait for a lock."""
    row = observer.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    ).fetchone()
    assert row is not None
    return int(row[0])
