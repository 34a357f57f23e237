"""Nothing is lost, repeated or reordered while both services are killed again and again under load.

ACCEPTANCE_SEED repeats a run's moments.
"""

import os
import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle

import pytest

from service.lifecycle.fault_points import Action, Fault
from tests.support.pipeline.pipeline import Pipeline
from tests.support.reading import read_to_end

SESSIONS_PER_SECOND = {3: 12, 25: 60}
"""By the number of kills. Few kills need less input: what a slow machine leaves unread has to be read, judged and compared at the end."""

# What a kill of the job found, by the plan's record and the ledger afterwards
START_UP = "during start-up"
IN_FLIGHT = "in a batch: begun, not in the outbox"
AFTER_COMMIT = "after Postgres' commit, before the job knows"
LATER = "after that, or between two batches"


@pytest.mark.guarantee(21, 46, 54, 55, 58)
@pytest.mark.timeout(2_400)
@pytest.mark.parametrize("kills", [3, pytest.param(25, marks=pytest.mark.faults)])
def test_every_output_arrives_once_and_in_order_although_both_services_are_killed_again_and_again(
    pipeline: Pipeline, kills: int
) -> None:
    seed = int(os.environ.get("ACCEPTANCE_SEED") or time.time_ns() % 2**32)
    print(f"\nACCEPTANCE_SEED={seed}")
    job_done = threading.Event()
    with pipeline.load(seed, sessions_per_second=SESSIONS_PER_SECOND[kills]) as feeder:
        with ThreadPoolExecutor(1) as pool:
            publisher_kills = pool.submit(kill_publisher, pipeline, random.Random(seed + 1), kills, job_done)
            try:
                tally = kill_job(pipeline, random.Random(seed), kills)
            finally:
                job_done.set()
            kills_of_publisher = publisher_kills.result()
        batches_under_fire, written = pipeline.batches(), feeder.written
        # The load outlasts the kills.
        pipeline.wait_until(lambda: feeder.written > written, "more input")
    pipeline.job.start(OUTBOX_JOB__MAX_EVENTS_PER_BATCH="50000")
    # The kills have made batches small, so that few of them met a transaction. These meet a backlog.
    kills_of_publisher += kill_publisher(pipeline, random.Random(seed + 2), max(1, kills // 5), job_done)
    pipeline.publisher.start()
    expected = pipeline.expectation()
    pipeline.complete(expected)
    pipeline.stop()

    unrecorded = pipeline.ask("SELECT count(*) FROM outbox.delivery WHERE kafka_offsets IS NULL")[0][0]
    aborted = aborted_records(pipeline, len(expected.outputs))
    print(
        f"input: {expected.records} events; {expected.sessions} sessions, {len(expected.outputs)} outputs, "
        f"dead letters {dict(Counter(letter.reason for letter in expected.letters))}, {expected.duplicates} duplicates\n"
        f"job: {dict(tally)}; {batches_under_fire} batches committed meanwhile\n"
        f"publisher: {kills_of_publisher} kills; {aborted} records in aborted transactions, "
        f"{unrecorded} transactions whose record in Postgres was filled in later"
    )
    pipeline.assert_exactly_once(expected)
    assert tally.total() >= kills
    assert kills_of_publisher >= kills
    assert tally[IN_FLIGHT] > 0
    assert tally[AFTER_COMMIT] > 0
    assert batches_under_fire >= kills // 2
    # A few kills may all come between two transactions; tests/faults/publisher aims at what is inside.
    assert kills < 25 or aborted + unrecorded > 0
    assert {letter.reason for letter in expected.letters} >= {
        "malformed",
        "no_start",
        "restarted",
        "timed_out",
        "transform_failed",
    }
    assert expected.duplicates > 0


def kill_job(pipeline: Pipeline, chance: random.Random, kills: int) -> Counter[str]:
    """Start and kill the job so many times, and until the two worst moments were hit; return what the kills found."""
    tally: Counter[str] = Counter()
    moments = [START_UP, IN_FLIGHT, AFTER_COMMIT, LATER, IN_FLIGHT]
    chance.shuffle(moments)
    for moment in cycle(moments):
        if tally.total() >= kills and tally[IN_FLIGHT] and tally[AFTER_COMMIT]:
            break
        tally[kill_at(pipeline, chance, moment)] += 1
    return tally


def kill_at(pipeline: Pipeline, chance: random.Random, moment: str) -> str:
    """Kill a new life of the job at a random moment of a kind. The kind is meant, not promised: return what was hit."""
    alive, number = (pipeline.job,), chance.randint(1, 3)
    point = {AFTER_COMMIT: "sink.after_commit", LATER: "query.after_batch"}.get(moment, "query.before_action")
    action = Action.HOLD if moment == AFTER_COMMIT else Action.PASS
    fired, runs, batches = len(pipeline.faults.fired()), len(pipeline.restored()), stream_batches(pipeline)
    pipeline.faults.write(Fault(point, action, number))
    pipeline.job.start(**pipeline.armed)
    pipeline.wait_until(lambda: len(pipeline.restored()) > runs, "the start", alive=alive)
    if moment == START_UP:
        pause(chance, 2.0)
    else:
        pipeline.wait_until(lambda: len(pipeline.faults.fired()) > fired, moment, alive=alive, poll_s=0.002)
        if moment != AFTER_COMMIT:
            pause(chance, 0.3)
    if moment == AFTER_COMMIT:
        pipeline.job.crash()
    else:
        pipeline.job.kill()
    pipeline.wait_until(pipeline.job_has_gone, "the end of the job's connections")
    begun = number if len(pipeline.faults.fired()) > fired else 0
    committed = stream_batches(pipeline) - batches
    if begun == 0:
        return START_UP
    if moment == AFTER_COMMIT:
        assert committed == begun
        return AFTER_COMMIT
    return IN_FLIGHT if committed < begun else LATER


def stream_batches(pipeline: Pipeline) -> int:
    """Batches that Spark has planned and the ledger has; empty ones leave nothing."""
    ((count,),) = pipeline.ask("SELECT count(*) FROM outbox.batch WHERE kind = 'stream' AND part = 0")
    return int(count)


def kill_publisher(
    pipeline: Pipeline, chance: random.Random, at_least: int, job_done: threading.Event
) -> int:
    """Start and kill the publisher until the job's kills are over, `at_least` times; return how often."""
    kills = 0
    while kills < at_least or not job_done.is_set():
        pipeline.publisher.start()
        until = time.monotonic() + chance.uniform(0.5, 12.0)
        enough = delivered(pipeline) + chance.randint(1, 8_000)
        # Most often while it delivers; the job is down half of the time, so also while there is nothing to do.
        pipeline.wait_until(
            lambda until=until, enough=enough: delivered(pipeline) >= enough or time.monotonic() > until,  # type: ignore[misc]
            "deliveries",
            alive=(pipeline.publisher,),
            poll_s=0.002,
        )
        pipeline.publisher.kill()
        kills += 1
    return kills


def delivered(pipeline: Pipeline) -> int:
    """Events that the consumer has seen."""
    return len(pipeline.watcher.seen)


def pause(chance: random.Random, at_most_s: float) -> None:
    """Let a random time pass. The moment of the kill is what is random here; nothing is waited for."""
    threading.Event().wait(chance.uniform(0, at_most_s))


def aborted_records(pipeline: Pipeline, committed: int) -> int:
    """Output records that only a read_uncommitted consumer sees: of transactions that a kill interrupted."""
    records = read_to_end(pipeline.bootstrap, *pipeline.outputs, isolation="read_uncommitted")
    return sum(1 for _ in records) - committed
