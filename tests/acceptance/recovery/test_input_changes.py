"""What happens to the input topic under a running job: transactions of its producers, more partitions, another topic of its name."""

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest

from tests.support.pipeline.expectation import Share
from tests.support.pipeline.feed import Transactions, ends_of, rounds, starts_of, write
from tests.support.pipeline.pipeline import Pipeline
from tests.support.waiting import wait_until

TRANSACTIONS = 40
SMALL_BATCHES = {"OUTBOX_JOB__MAX_EVENTS_PER_BATCH": "40"}


@pytest.mark.guarantee(19)
def test_what_transactions_abort_leaves_no_trace_wherever_batches_are_cut(pipeline: Pipeline) -> None:
    """The job begins at the end of a topic in which a transaction is open: it reads that one once it is committed."""
    job, chance = pipeline.job, random.Random(71)
    before, during = [f"before-{n}" for n in range(5)], [f"during-{n}" for n in range(20)]
    write(pipeline.bootstrap, pipeline.input, starts_of(before))
    write(pipeline.bootstrap, pipeline.input, ends_of(before))
    pipeline.publisher.start()
    with Transactions(pipeline.bootstrap, pipeline.input) as producer:
        producer.write(starts_of(during))
        start = pipeline.input_topic.readable_ends()
        skipped = pipeline.expectation().records
        job.start(OUTBOX_SOURCE__STARTING_OFFSETS="latest", **SMALL_BATCHES)
        pipeline.wait_until(lambda: pipeline.restored() == ["fresh"], "the start", alive=(job,))
        ((found,),) = pipeline.ask("SELECT start_offsets FROM outbox.generation")
        assert found == {pipeline.input_topic.id(): {str(p): offset for p, offset in start.items()}}
        producer.write(ends_of(during))
        producer.end(commit=True)

        records = rounds(72, 100, 100)
        for number in range(TRANSACTIONS):
            producer.write(islice(records, chance.randint(1, 60)))
            producer.end(commit=chance.random() < 0.6)
            if number % 10 == 5:
                # What is open is found again among records that were aborted.
                pipeline.wait_for_input(pipeline.expectation())
                pipeline.lose_cache()
        # Slices of nothing but aborted records, again and again.
        for _ in range(3):
            producer.write(islice(records, 60))
            producer.end(commit=False)
            ends = pipeline.input_topic.readable_ends()
            pipeline.wait_until(
                lambda ends=ends: pipeline.has_read_to(ends),  # type: ignore[misc]
                "the end of aborted records",
                alive=(job,),
            )
        producer.write(islice(records, 200))
        producer.end(commit=True)
    expected = pipeline.expectation(Share(floor=start))
    assert expected.sessions > len(during)
    pipeline.complete(expected)
    pipeline.stop()
    pipeline.assert_exactly_once(replace(expected, records=expected.records - skipped))
    assert pipeline.restarts() == []
    assert pipeline.rebuilt()
    ((empty,),) = pipeline.ask("SELECT count(*) FROM outbox.batch WHERE input_events = 0")
    assert empty > 0


@pytest.mark.guarantee(21)
@pytest.mark.faults
def test_the_first_start_begins_at_a_time_and_later_ones_keep_to_that(pipeline: Pipeline) -> None:
    """It is killed as soon as it has stored where it begins; the setting names another place by then."""
    job, before = pipeline.job, [f"before-{n}" for n in range(30)]
    pipeline.publisher.start()
    write(pipeline.bootstrap, pipeline.input, starts_of(before))
    write(pipeline.bootstrap, pipeline.input, ends_of(before))
    start, skipped = pipeline.input_topic.readable_ends(), pipeline.expectation().records
    at = datetime.now(UTC) + timedelta(milliseconds=2)
    wait_until(lambda: datetime.now(UTC) > at, "a later millisecond")
    pipeline.feed(73, sessions=100)
    job.start(OUTBOX_SOURCE__STARTING_OFFSETS=at.isoformat(), **SMALL_BATCHES)
    pipeline.wait_until(lambda: pipeline.restored() == ["fresh"], "the start", alive=(job,))
    job.kill()
    ((found, why),) = pipeline.ask("SELECT start_offsets, explanation FROM outbox.generation")
    assert found == {pipeline.input_topic.id(): {str(p): offset for p, offset in start.items()}}
    assert why.startswith("fresh start: the first generation reads from 20")
    job.start(OUTBOX_SOURCE__STARTING_OFFSETS="earliest")
    expected = pipeline.expectation(Share(floor=start))
    pipeline.complete(expected)
    pipeline.stop()
    pipeline.assert_exactly_once(replace(expected, records=expected.records - skipped))
    assert pipeline.restored() == ["fresh", "position"]


@pytest.mark.guarantee(18, 82)
def test_added_partitions_are_read_at_once_and_a_topic_made_again_once_that_is_accepted(
    pipeline: Pipeline,
) -> None:
    job = pipeline.job
    pipeline.publisher.start()
    pipeline.hold_open(6)
    pipeline.feed(41, sessions=100)
    job.start(**pipeline.armed)
    pipeline.wait_for_input(pipeline.expectation())
    pipeline.input_topic.add_partitions(5)
    pipeline.feed(42, sessions=100)
    before = pipeline.expectation()
    assert len(before.ends) == 5
    pipeline.wait_for_input(before)
    assert pipeline.restarts() == []

    old_id = pipeline.input_topic.id()
    with pipeline.held_at("query.before_action", start=lambda: pipeline.feed(43, sessions=100)):
        pipeline.input_topic.recreate()
        # So much that Spark finds the offsets it wants, and reads on without a word.
        pipeline.feed(44, sessions=600)
    assert job.wait() == 5, job.tail()
    said = pipeline.refused()
    assert f"its id is {pipeline.input_topic.id()}, the outbox has read {old_id}" in said
    assert "are open, partition " in said
    assert said.rstrip().endswith("spark-job run --accept-new-topic")
    pipeline.start_and_see("new_generation", OUTBOX_ACCEPT_NEW_TOPIC="1")
    later = pipeline.expectation()
    pipeline.complete(later)
    pipeline.stop()
    pipeline.assert_exactly_once(before.followed_by(later))
    assert pipeline.generations() == [(1, "first", 0), (2, "new_topic", 0)]
