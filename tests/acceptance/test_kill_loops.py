"""Nothing is lost, repeated or reordered while both services are killed again and again under load.

ACCEPTANCE_SEED repeats a run's moments, ACCEPTANCE_KILLS asks for more of them.
"""

import os
import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.acceptance.moments import is_between, is_in_flight
from tests.acceptance.pipeline import Pipeline, Position
from tests.acceptance.verdict import ends

KILLS = int(os.environ.get("ACCEPTANCE_KILLS", "10"))
SESSIONS_PER_SECOND = 60

# What a kill of the job found, by checkpoint and ledger afterwards
START_UP = "during start-up"
IN_FLIGHT = "in a batch: planned, not in the outbox"
BETWEEN_COMMITS = "between Postgres' commit and Spark's"
BETWEEN_BATCHES = "between two batches"


@pytest.mark.timeout(1_200)
def test_every_output_arrives_once_and_in_order_although_both_services_are_killed_again_and_again(
    pipeline: Pipeline,
) -> None:
    seed = int(os.environ.get("ACCEPTANCE_SEED") or time.time_ns() % 2**32)
    print(f"\nACCEPTANCE_SEED={seed}")
    job_done = threading.Event()
    with pipeline.load(seed, sessions_per_second=SESSIONS_PER_SECOND) as feeder:
        with ThreadPoolExecutor(1) as pool:
            publisher_kills = pool.submit(kill_publisher, pipeline, random.Random(seed + 1), job_done)
            try:
                tally = kill_job(pipeline, random.Random(seed))
            finally:
                job_done.set()
            kills_of_publisher = publisher_kills.result()
        batches_under_fire, written = pipeline.batches(), feeder.written
        # The load outlasts the kills.
        pipeline.wait_until(lambda: feeder.written > written, "more input")
    pipeline.publisher.start()
    pipeline.job.start(OUTBOX_JOB__MAX_EVENTS_PER_BATCH="50000")
    expected = pipeline.expectation()
    pipeline.complete(expected)
    pipeline.stop()

    unrecorded = pipeline.ask("SELECT count(*) FROM outbox.delivery WHERE kafka_offsets IS NULL")[0][0]
    recomputed = pipeline.ask("SELECT count(*) FROM outbox.batch WHERE recomputed_at IS NOT NULL")[0][0]
    aborted = aborted_records(pipeline, len(expected.outputs))
    print(
        f"input: {expected.records} events; {expected.sessions} sessions, {len(expected.outputs)} outputs, "
        f"dead letters {dict(Counter(letter.reason for letter in expected.letters))}, {expected.duplicates} duplicates\n"
        f"job: {dict(tally)}; {batches_under_fire} batches committed meanwhile, {recomputed} repeated\n"
        f"publisher: {kills_of_publisher} kills; {aborted} records in aborted transactions, "
        f"{unrecorded} transactions whose record in Postgres was filled in later"
    )
    pipeline.assert_exactly_once(expected)
    assert tally.total() >= KILLS
    assert kills_of_publisher >= KILLS
    assert tally[IN_FLIGHT] > 0
    assert tally[BETWEEN_COMMITS] > 0
    assert recomputed > 0
    assert batches_under_fire >= KILLS // 2
    assert aborted + unrecorded > 0
    assert {letter.reason for letter in expected.letters} >= {
        "malformed",
        "no_start",
        "restarted",
        "timed_out",
        "transform_failed",
    }
    assert expected.duplicates > 0


def kill_job(pipeline: Pipeline, chance: random.Random) -> Counter[str]:
    """Start and kill the job KILLS times, and until the two worst moments were hit; return what the kills found."""
    tally: Counter[str] = Counter()
    moments = [START_UP, IN_FLIGHT, BETWEEN_COMMITS, BETWEEN_BATCHES, IN_FLIGHT]
    chance.shuffle(moments)
    for moment in cycle(moments):
        if tally.total() >= KILLS and tally[IN_FLIGHT] and tally[BETWEEN_COMMITS]:
            break
        before = pipeline.position()
        pipeline.job.start()
        await_moment(pipeline, chance, moment, before)
        if moment == BETWEEN_COMMITS:
            # Its JVM would live a moment longer and do its commit.
            pipeline.job.crash()
        else:
            pipeline.job.kill()
        pipeline.wait_until(pipeline.job_has_gone, "the end of the job's connections")
        tally[found(before, pipeline.position())] += 1
    return tally


def await_moment(pipeline: Pipeline, chance: random.Random, moment: str, before: Position) -> None:
    """Return at a random moment of a kind. The kind is meant, not promised: what was hit is looked at afterwards."""
    alive = (pipeline.job,)
    if moment == START_UP:
        pipeline.wait_until(lambda: pipeline.owns(pipeline.job), "the start", alive=alive)
        pause(chance, 2.0)
        return
    after = before.stored + chance.randint(1, 2)
    pipeline.wait_until(lambda: pipeline.position().stored >= after, "batches", alive=alive)
    if moment == IN_FLIGHT:
        pipeline.wait_until(lambda: is_in_flight(pipeline.position()), moment, alive=alive, poll_s=0.005)
        pause(chance, 0.2)
    elif moment == BETWEEN_COMMITS:
        pipeline.wait_until(lambda: is_between(pipeline.position()), moment, alive=alive, poll_s=0.001)
    else:
        pause(chance, 1.0)


def kill_publisher(pipeline: Pipeline, chance: random.Random, job_done: threading.Event) -> int:
    """Start and kill the publisher until the job's kills are over, KILLS times at least; return how often."""
    kills = 0
    while kills < KILLS or not job_done.is_set():
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


def found(before: Position, after: Position) -> str:
    """What a life that ended so was doing. Whether a life without any progress repeated a batch is not visible: start-up."""
    if after == before:
        return START_UP
    if is_between(after):
        return BETWEEN_COMMITS
    return IN_FLIGHT if is_in_flight(after) else BETWEEN_BATCHES


def delivered(pipeline: Pipeline) -> int:
    """Events that the consumer has seen."""
    return len(pipeline.watcher.seen)


def pause(chance: random.Random, at_most_s: float) -> None:
    """Let a random time pass. The moment of the kill is what is random here; nothing is waited for."""
    threading.Event().wait(chance.uniform(0, at_most_s))


def aborted_records(pipeline: Pipeline, committed: int) -> int:
    """Output records that only a read_uncommitted consumer sees: of transactions that a kill interrupted."""
    consumer = Consumer(
        {
            "bootstrap.servers": pipeline.bootstrap,
            "group.id": "aborted",
            "isolation.level": "read_uncommitted",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        places = ends(pipeline.bootstrap, pipeline.outputs, committed=False)
        consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in places])
        records, at_end = 0, 0
        while at_end < len(places):
            for message in consumer.consume(10_000, timeout=0.2):
                at_end += message.error() is not None
                records += message.error() is None
        return records - committed
    finally:
        consumer.close()
