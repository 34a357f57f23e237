"""What a start finds and decides (design §3.4): it goes on by itself where nothing can be lost or repeated, else it says what would be.

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
from tests.acceptance.expectation import Expectation, Share
from tests.acceptance.pipeline import Pipeline


@pytest.mark.faults
@pytest.mark.timeout(3_600)
def test_each_start_says_how_it_found_itself_and_an_unused_generation_is_used_as_it_stands(
    pipeline: Pipeline,
) -> None:
    """⚠ design §3.4: a kill between a generation's insert and its first commit changes nothing.

    On the way: wrong settings, corrected before anything was read; and --new-generation.
    """
    job = pipeline.job
    pipeline.publisher.start()
    log = {"OUTBOX_LOG__FORMAT": "json"}
    job.start(OUTBOX_SESSION__START="begin_event", **log)
    pipeline.wait_until(lambda: pipeline.restored() == ["fresh"], "the start", alive=(job,))
    assert_all_say(pipeline, "fresh", generation=1, read_again=0)
    pipeline.crash()

    said = pipeline.refused()
    assert "start: 'begin_event' -> 'start_event'" in said
    assert said.rstrip().endswith("spark-job run --accept-changed-assembly")
    pipeline.feed(31, sessions=150)
    with no_commits(pipeline):
        job.start(OUTBOX_ACCEPT_CHANGED_ASSEMBLY="1", **log)
        pipeline.wait_until(
            lambda: pipeline.generations()[-1][0] == 2 and pipeline.position().planned == 0,
            "the first batch's plan",
            alive=(job,),
        )
        assert_all_say(pipeline, "new_generation", generation=2, read_again=0)
        pipeline.crash()
    directory = pipeline.generation_directory()
    assert pipeline.position().stored == -1

    # The settings agree now: the flag has nothing to allow, and changes nothing.
    pipeline.start_and_see("unused_generation", OUTBOX_ACCEPT_CHANGED_ASSEMBLY="1", **log)
    assert pipeline.generation_directory() == directory
    assert_all_say(pipeline, "unused_generation", generation=2, read_again=0)
    pipeline.wait_for_input(pipeline.expectation())
    assert job.terminate() == 0, job.tail()
    assert pipeline.status()["start"]["ended_because"] == "stopped"

    pipeline.feed(32, sessions=150)
    pipeline.start_and_see("checkpoint", **log)
    assert_all_say(pipeline, "checkpoint", generation=2, read_again=0)
    pipeline.wait_for_input(pipeline.expectation())
    pipeline.crash()
    ((open_events,),) = pipeline.ask(
        "SELECT sum(d.value::int - s.value::int) FROM (SELECT * FROM outbox.batch ORDER BY batch_id DESC LIMIT 1) b,"
        " jsonb_each(b.done_offsets) dt, jsonb_each_text(dt.value) d, jsonb_each(b.safe_offsets) st, jsonb_each_text(st.value) s"
        " WHERE d.key = s.key"
    )
    assert open_events > 0
    pipeline.job.start("--new-generation", **log)
    pipeline.wait_until(
        lambda: pipeline.generations()[-1] == (3, "requested", 0), "a generation", alive=(job,)
    )
    assert_all_say(pipeline, "new_generation", generation=3, read_again=open_events)
    pipeline.feed(33, sessions=150)
    expected = pipeline.expectation()
    pipeline.complete(expected)
    pipeline.stop()
    pipeline.assert_exactly_once(expected)
    assert pipeline.generations() == [(1, "first", 0), (2, "changed_assembly", 0), (3, "requested", 0)]


@pytest.mark.faults
@pytest.mark.timeout(3_600)
def test_a_topic_that_was_made_again_is_read_from_its_beginning_once_that_is_accepted(
    pipeline: Pipeline,
) -> None:
    job = pipeline.job
    pipeline.publisher.start()
    pipeline.hold_open(6)
    pipeline.feed(41, sessions=150)
    pipeline.start_and_see("fresh")
    before = pipeline.expectation()
    pipeline.wait_for_input(before)
    pipeline.crash()
    old_id = pipeline.input_topic.id()
    pipeline.input_topic.recreate()
    pipeline.feed(42, sessions=150)

    said = pipeline.refused()
    assert f"generation 1 reads {old_id}" in said
    assert "open since partition" in said
    assert said.rstrip().endswith("spark-job run --accept-new-topic")
    pipeline.start_and_see("new_generation", OUTBOX_ACCEPT_NEW_TOPIC="1")
    later = pipeline.expectation()
    pipeline.complete(later)
    pipeline.stop()
    pipeline.assert_exactly_once(one_after_the_other(before, later))
    assert pipeline.generations() == [(1, "first", 0), (2, "new_topic", 0)]
    assert job.log().count("--accept-new-topic") == 1


@pytest.mark.faults
@pytest.mark.timeout(3_600)
def test_retention_past_the_safe_offsets_stops_only_the_start_that_needs_them(pipeline: Pipeline) -> None:
    job = pipeline.job
    pipeline.publisher.start()
    pipeline.hold_open(6)
    pipeline.feed(51, sessions=150)
    pipeline.start_and_see("fresh")
    read = pipeline.expectation()
    pipeline.wait_for_input(read)
    pipeline.crash()

    # All that was read is deleted. The state in the checkpoint has it: the sessions held open come out whole.
    pipeline.input_topic.delete_records(read.ends)
    pipeline.release()
    pipeline.hold_open(6)
    pipeline.feed(52, sessions=150)
    pipeline.start_and_see("checkpoint")
    whole = pipeline.expectation()
    pipeline.wait_for_input(whole)
    pipeline.crash()

    # Without the checkpoint the sessions open now are needed from the topic, which has lost them.
    pipeline.input_topic.delete_records(whole.ends)
    pipeline.lose_checkpoint()
    pipeline.release()
    pipeline.feed(53, sessions=150)
    said = pipeline.refused()
    ((safe,),) = pipeline.ask("SELECT safe_offsets FROM outbox.batch ORDER BY batch_id DESC LIMIT 1")
    for partition, first in safe[pipeline.input_topic.id()].items():
        end = whole.ends[int(partition)]
        assert (
            first == end
            or f"{pipeline.input}/{partition}: offsets {first} to {end - 1} ({end - first})" in said
        )
    assert said.rstrip().endswith("spark-job run --accept-data-loss")
    pipeline.start_and_see("new_generation", OUTBOX_ACCEPT_DATA_LOSS="1")
    done = pipeline.expectation(Share(ceiling=whole.ends))
    left = pipeline.expectation(Share(floor=whole.ends), of_what_is_left=True)
    pipeline.complete(left)
    pipeline.stop()
    pipeline.assert_exactly_once(one_after_the_other(done, replace(left, records=0, duplicates=0)))
    assert pipeline.restored() == ["fresh", "checkpoint", "new_generation"]
    assert pipeline.generations() == [(1, "first", 0), (2, "data_loss", 0)]
    assert job.log().count("--accept-data-loss") == 1


@pytest.mark.faults
@pytest.mark.timeout(3_600)
def test_a_database_restored_to_an_older_state_stops_the_job_and_what_is_sent_again_has_equal_ids(
    pipeline: Pipeline, postgres: PostgresServer
) -> None:
    """Twice: to before the newest batches of a generation, and to before a generation existed."""
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
        pipeline.start_and_see("checkpoint")
        expected = pipeline.expectation()
        pipeline.complete(expected)
        lost = pipeline.batches() - dumped
        pipeline.stop()

        restore(pipeline, postgres, dump)
        said = pipeline.refused()
        assert "is ahead: it has planned Spark batch" in said
        assert f"at most those of {lost} batches" in said
        assert said.rstrip().endswith("spark-job run --accept-outbox-behind")
        pipeline.start_and_see("new_generation", OUTBOX_ACCEPT_OUTBOX_BEHIND="1")
        pipeline.wait_for_input(expected)
        assert job.terminate() == 0, job.tail()
        assert pipeline.generations() == [(1, "first", 0), (2, "outbox_behind", 0)]
        assert_sent_twice_with_equal_ids(pipeline, expected)

        # This dump knows nothing of generation 2; its own generation's directory is gone.
        restore(pipeline, postgres, dump)
        pipeline.lose_checkpoint()
        said = pipeline.refused()
        assert "/gen-2-" in said
        assert "whose generation the database does not know" in said
        assert said.rstrip().endswith("spark-job run --accept-outbox-behind")
        pipeline.start_and_see("new_generation", OUTBOX_ACCEPT_OUTBOX_BEHIND="1")
        pipeline.wait_for_input(expected)
        assert job.terminate() == 0, job.tail()
        # Number 2 is taken, by a directory that the next start must not take for a sign of another restore.
        assert pipeline.generations() == [(1, "first", 0), (3, "outbox_behind", 0)]
        assert_sent_twice_with_equal_ids(pipeline, expected)
    finally:
        postgres.drop_database(dump)


def assert_all_say(pipeline: Pipeline, restored: str, *, generation: int, read_again: int) -> None:
    """Fail unless the newest row of outbox.run, the log line of the start and `spark-job status` say the same, and this."""

    def lines() -> list[dict[str, Any]]:
        found = [json.loads(line) for line in pipeline.job.log().splitlines() if line.startswith("{")]
        return [line for line in found if line["event"] == "job_started"]

    ((run, resumes_at, explanation),) = pipeline.ask(
        "SELECT run_id::text, resumes_at, explanation FROM outbox.run ORDER BY started_at DESC LIMIT 1"
    )
    pipeline.wait_until(lambda: lines() and lines()[-1]["run"] == run, "the log line of the start")
    logged, shown = lines()[-1], pipeline.status()["start"]
    for said in (logged, shown):
        assert (said["run"], said["restored"], said["generation"]) == (run, restored, generation)
        assert (said["explanation"], said["read_again"]) == (explanation, read_again)
    assert shown["resumes_at"] == resumes_at
    ((of_topic),) = resumes_at.values()
    assert logged["resumes_at"] == {f"{pipeline.input}/{p}": offset for p, offset in of_topic.items()}


@contextmanager
def no_commits(pipeline: Pipeline) -> Iterator[None]:
    """While the block runs, no batch with outputs can be committed; a start can."""
    with psycopg.connect(pipeline.dsn) as blocker:
        blocker.execute("LOCK TABLE outbox.session_output IN EXCLUSIVE MODE")
        yield
        blocker.rollback()


def one_after_the_other(before: Expectation, later: Expectation) -> Expectation:
    """What must be there when two inputs were read one after the other."""
    return replace(
        later,
        records=before.records + later.records,
        sessions=before.sessions + later.sessions,
        duplicates=before.duplicates + later.duplicates,
        outputs=before.outputs + later.outputs,
        letters=before.letters + later.letters,
    )


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
