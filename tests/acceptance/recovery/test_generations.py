"""What a start finds and decides: it continues by itself where nothing can be lost or repeated, else it says what would be.

Flags are given as environment variables, as in a container.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from devstack.databases import PostgresServer
from tests.support.pipeline.expectation import Expectation, Share
from tests.support.pipeline.pipeline import Pipeline

pytestmark = [pytest.mark.faults, pytest.mark.timeout(3_600)]


@pytest.mark.guarantee(92)
def test_each_start_says_how_it_found_itself_and_an_unused_generation_is_used_as_it_stands(
    pipeline: Pipeline,
) -> None:
    """A kill between a generation's insert and its first commit changes nothing.

    On the way: wrong settings, corrected before anything was read.
    """
    job = pipeline.job
    pipeline.publisher.start()
    log = {"OUTBOX_LOG__FORMAT": "json"}
    job.start(OUTBOX_SESSION__START="begin_event", **log)
    pipeline.wait_until(lambda: pipeline.restored() == ["fresh"], "the start", alive=(job,))
    assert_all_say(pipeline, "fresh", generation=1, rebuild_offsets=0)
    pipeline.crash()

    said = pipeline.refused()
    assert "start: 'begin_event' -> 'start_event'" in said
    assert said.rstrip().endswith("spark-job run --accept-changed-assembly")
    pipeline.feed(31, sessions=150)
    with no_commits(pipeline):
        job.start(OUTBOX_ACCEPT_CHANGED_ASSEMBLY="1", **log)
        pipeline.wait_until(lambda: waits_for_a_lock(pipeline), "the first batch", alive=(job,))
        assert_all_say(pipeline, "new_generation", generation=2, rebuild_offsets=0)
        pipeline.crash()
    assert pipeline.batches() == 0

    # The settings agree now: the flag has nothing to allow, and changes nothing.
    pipeline.start_and_see("position", OUTBOX_ACCEPT_CHANGED_ASSEMBLY="1", **log)
    assert_all_say(pipeline, "position", generation=2, rebuild_offsets=0)
    pipeline.wait_for_input(pipeline.expectation())
    assert job.terminate() == 0, job.tail()
    assert pipeline.status()["start"]["ended_because"] == "stopped"

    pipeline.hold_open(6)
    pipeline.start_and_see("position", **log)
    pipeline.wait_for_input(pipeline.expectation())
    pipeline.crash()
    shown = pipeline.status()
    ((ends),), ((safe),) = shown["end_offsets"].values(), shown["safe_offsets"].values()
    needed = sum(ends[partition] - safe[partition] for partition in ends)
    assert needed > 0
    pipeline.release()
    pipeline.start_and_see("position", **log)
    assert_all_say(pipeline, "position", generation=2, rebuild_offsets=needed)
    pipeline.finish()
    assert pipeline.generations() == [(1, "first", 0), (2, "changed_assembly", 0)]


@pytest.mark.guarantee(82, 148)
def test_retention_past_the_safe_offsets_stops_the_job_only_once_it_must_read_there(
    pipeline: Pipeline,
) -> None:
    job = pipeline.job
    pipeline.publisher.start()
    pipeline.hold_open(6)
    pipeline.feed(51, sessions=150)
    pipeline.start_and_see("fresh")
    read = pipeline.expectation()
    pipeline.wait_for_input(read)

    # All that was read is deleted. The job's cache has what is open: it comes out whole.
    pipeline.input_topic.delete_records(read.ends)
    pipeline.release()
    pipeline.hold_open(6)
    pipeline.feed(52, sessions=150)
    whole = pipeline.expectation()
    pipeline.wait_for_input(whole)

    # Without the cache the sessions that are open now are needed from the topic, which has lost them.
    pipeline.input_topic.delete_records(whole.ends)
    pipeline.lose_cache()
    pipeline.release()
    pipeline.feed(53, sessions=150)
    assert job.wait() == 5, job.tail()
    assert pipeline.restarts() == ["MovedError"]
    batches, safe = pipeline.batches(), pipeline.status()["safe_offsets"][pipeline.input_topic.id()]
    said = pipeline.refused()
    assert "Kafka has deleted input that is still needed" in said
    for partition, first in safe.items():
        end = whole.ends[int(partition)]
        assert (
            first == end
            or f"{pipeline.input}/{partition}: offsets {first} to {end - 1} ({end - first})" in said
        )
    assert "become dead letters (no_start)" in said
    assert said.rstrip().endswith("spark-job run --accept-data-loss")
    assert pipeline.batches() == batches
    pipeline.start_and_see("new_generation", OUTBOX_ACCEPT_DATA_LOSS="1")
    done = pipeline.expectation(Share(ceiling=whole.ends))
    left = pipeline.expectation(Share(floor=whole.ends), of_what_is_left=True)
    assert [letter for letter in left.letters if letter.reason == "no_start"]
    pipeline.complete(left)
    pipeline.stop()
    done = replace(done, duplicates=whole.duplicates)
    pipeline.assert_exactly_once(done.followed_by(replace(left, records=0)))
    assert pipeline.restored() == ["fresh", "new_generation"]
    assert pipeline.generations() == [(1, "first", 0), (2, "data_loss", 0)]


@pytest.mark.guarantee(50, 80, 159)
def test_a_database_restored_to_an_older_state_stops_the_job_and_what_is_sent_again_has_equal_ids(
    pipeline: Pipeline, postgres: PostgresServer
) -> None:
    job = pipeline.job
    dump = f"{name_of(pipeline)}_dump"
    pipeline.publisher.start()
    pipeline.feed(61, sessions=150)
    pipeline.start_and_see("fresh")
    pipeline.wait_for_input(pipeline.expectation())
    assert job.terminate() == 0, job.tail()
    assert pipeline.publisher.terminate() == 0
    try:
        copy_database(pipeline, postgres, name_of(pipeline), dump)
        dumped = pipeline.batches()
        pipeline.feed(62, sessions=150)
        pipeline.publisher.start()
        pipeline.start_and_see("position")
        expected = pipeline.expectation()
        pipeline.complete(expected)
        lost = pipeline.batches() - dumped
        pipeline.stop()

        restore(pipeline, postgres, dump)
        said = pipeline.refused()
        assert f"the ledger ends with batch {dumped}: outputs of at most {lost} batches go out again" in said
        assert said.rstrip().endswith("spark-job run --accept-outbox-behind")
        pipeline.start_and_see("new_generation", OUTBOX_ACCEPT_OUTBOX_BEHIND="1")
        pipeline.wait_for_input(expected)
        assert job.terminate() == 0, job.tail()
        assert pipeline.generations() == [(1, "first", 0), (2, "outbox_behind", 0)]
        assert_sent_twice_with_equal_ids(pipeline, expected)
    finally:
        postgres.drop_database(dump)


def assert_all_say(pipeline: Pipeline, restored: str, *, generation: int, rebuild_offsets: int) -> None:
    """Fail unless the newest row of outbox.run, the log line of the start and `spark-job status` say the same, and this."""

    def lines(event: str = "job_started") -> list[dict[str, Any]]:
        found = [json.loads(line) for line in pipeline.job.log().splitlines() if line.startswith("{")]
        return [line for line in found if line["event"] == event]

    ((run, resumes_at, explanation),) = pipeline.ask(
        "SELECT run_id::text, resumes_at, explanation FROM outbox.run ORDER BY started_at DESC LIMIT 1"
    )
    pipeline.wait_until(lambda: lines() and lines()[-1]["run"] == run, "the log line of the start")
    pipeline.wait_until(lambda: len(lines("job_resumes_at")) == len(lines()), "the lines after it")
    logged = lines()[-1] | lines("job_resumes")[-1] | lines("job_rebuilds")[-1]
    shown = pipeline.status()["start"]
    for said in (logged, shown):
        assert (said["run"], said["restored"], said["generation"]) == (run, restored, generation)
        assert (said["explanation"], said["rebuild_offsets"]) == (explanation, rebuild_offsets)
    assert shown["resumes_at"] == resumes_at
    ((of_topic),) = resumes_at.values()
    assert lines("job_resumes_at")[-1]["at"] == {
        f"{pipeline.input}/{p}": offset for p, offset in of_topic.items()
    }


@contextmanager
def no_commits(pipeline: Pipeline) -> Iterator[None]:
    """While the block runs, no batch with outputs can be committed; a start can."""
    with psycopg.connect(pipeline.dsn) as blocker:
        blocker.execute("LOCK TABLE outbox.session_output IN EXCLUSIVE MODE")
        yield
        blocker.rollback()


def waits_for_a_lock(pipeline: Pipeline) -> bool:
    """Whether the job does."""
    found = pipeline.ask(
        "SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'spark-job'"
        " AND wait_event_type = 'Lock'"
    )
    return bool(found)


def assert_sent_twice_with_equal_ids(pipeline: Pipeline, expected: Expectation) -> None:
    """Fail unless the outbox has each output once, and what a consumer has seen already is among them under the same id."""
    seen = {(e.outbox_id, e.revision): (e.topic, e.key, e.value) for e in pipeline.watcher.seen}
    assert len(seen) == len(pipeline.watcher.seen) == len(expected.outputs)
    rows = pipeline.ask("SELECT outbox_id, revision, topic, key, value FROM outbox.event")
    again = {(row[0], row[1]): tuple(row[2:]) for row in rows}
    assert len(again) == len(rows)
    assert again == seen == {(o.outbox_id, o.revision): (o.topic, o.key, o.value) for o in expected.outputs}


def name_of(pipeline: Pipeline) -> str:
    """The database's name."""
    ((name,),) = pipeline.ask("SELECT current_database()")
    assert isinstance(name, str)
    return name


def copy_database(pipeline: Pipeline, postgres: PostgresServer, name: str, to: str) -> None:
    """A dump, taken by the server itself; nobody may be connected meanwhile."""
    pipeline.disconnect()
    postgres.create_database(to, template=name)
    pipeline.connect()


def restore(pipeline: Pipeline, postgres: PostgresServer, dump: str) -> None:
    """Put the dump in the database's place."""
    name = name_of(pipeline)
    pipeline.disconnect()
    postgres.drop_database(name)
    postgres.create_database(name, template=dump)
    pipeline.connect()
