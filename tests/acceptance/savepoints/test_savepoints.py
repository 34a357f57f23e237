"""Savepoints, stop and restore while the load continues: each output arrives as often as was asked for, and as computed then."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from devstack.kafka import KafkaServer
from tests.support.pipeline.expectation import Share
from tests.support.pipeline.options import Options
from tests.support.pipeline.pipeline import Pipeline
from tests.support.pipeline.transforms import mended

PATIENCE_S = 600.0
"""For a machine that does much else meanwhile."""

WAIT = ("--timeout", f"{PATIENCE_S:g}")

pytestmark = pytest.mark.timeout(1_800)

MENDED = {"OUTBOX_TRANSFORM__FUNCTION": "tests.support.pipeline.transforms:mended"}


@pytest.fixture
def patient(database: str, kafka: KafkaServer, topic_prefix: str, tmp_path: Path) -> Iterator[Pipeline]:
    """A pipeline whose job counts as alive however slow the machine is."""
    options: Options = {"job": {"owner_timeout_s": PATIENCE_S, "max_events_per_batch": 2_000}}
    with Pipeline(database, kafka.bootstrap_servers, topic_prefix, tmp_path, options=options) as made:
        yield made


@pytest.mark.guarantee(90)
def test_a_running_job_goes_back_to_a_savepoint_skips_to_the_end_again_and_stops_at_another_one(
    patient: Pipeline,
) -> None:
    pipeline, job = patient, patient.job
    pipeline.publisher.start()
    with pipeline.load(21, sessions_per_second=15):
        job.start(**pipeline.armed)
        pipeline.more_batches(3)
        pid = job.pid
        made = pipeline.command_json("savepoint", "create", "early")
        pipeline.more_batches(3)
        (shown,) = pipeline.command_json("savepoint", "list")
        assert (shown["name"], shown["state"], shown["batch"]) == ("early", "alive", made["batch"])

        # It goes back between two batches, in the same process.
        restored = pipeline.command_json(
            "savepoint", "restore", "early", "--policy", "reissue", "--yes", *WAIT
        )
        assert (restored["running"], restored["revision"]) == (True, 1)
        assert restored["resumes_at"] == made["end_offsets"]
        assert restored["open_sessions"] == made["open_sessions"] > 0
        assert restored["foreseen"]["outputs_closed_since"] > 0
        pipeline.more_batches(1)
        # A reissue ends early: what it has not come to is not sent again.
        skipped = pipeline.command_json("savepoint", "restore", "--policy", "skip", "--yes", *WAIT)
        assert (skipped["running"], skipped["revision"]) == (True, 1)
        pipeline.more_batches(2)
        assert job.pid == pid

        # The batch that waits for its commit meanwhile belongs to the savepoint.
        with pipeline.held_at("sink.before_transaction"):
            committed = pipeline.batches()
            stopping = pipeline.begin("stop", "--savepoint", "end", *WAIT, "--json")
            pipeline.wait_until(
                lambda: pipeline.ask("SELECT FROM outbox.request WHERE answered_at IS NULL"), "the request"
            )
        stopped = json.loads(stopping.communicate(timeout=PATIENCE_S)[0])
        assert stopped["stopped"]
        assert stopped["savepoint"]["batch"] > committed
        assert job.wait(PATIENCE_S) == 0, job.tail()
        assert stopped["savepoint"]["batch"] == pipeline.batches()
        assert pipeline.owner() is None

        # While nobody runs: the command opens the generation, the next start continues with it.
        restored = pipeline.command_json("savepoint", "restore", "--policy", "skip", "--yes")
        assert not restored["running"]
        job.start()
        pipeline.more_batches(2)
    pipeline.finish(
        Share(ceiling=last_end(pipeline, 1)),
        Share(revision=1, floor=of(made["end_offsets"]), ceiling=last_end(pipeline, 2)),
        Share(revision=1, floor=of(skipped["resumes_at"])),
    )
    assert pipeline.generations() == [(1, "first", 0), (2, "savepoint", 1), (3, "skip", 1), (4, "skip", 1)]
    assert pipeline.restored() == ["fresh", "savepoint", "savepoint", "savepoint"]

    # Retention takes what the first savepoint needs, and the later one does not: a session may be open in both.
    (safe,), (later,) = made["safe_offsets"].values(), stopped["savepoint"]["safe_offsets"].values()
    passed = {int(partition): offset + 1 for partition, offset in safe.items() if offset < later[partition]}
    assert passed
    pipeline.input_topic.delete_records(passed)
    listed = pipeline.command_json("savepoint", "list")
    assert [(found["name"], found["state"]) for found in listed] == [("early", "expired"), ("end", "alive")]
    refused = pipeline.command("savepoint", "restore", "early", "--policy", "reissue", "--yes", code=5)
    assert "Kafka has deleted input that is still needed" in refused
    assert "spark-job savepoint restore early --policy reissue --accept-data-loss" in refused


@pytest.mark.guarantee(51, 90, 139)
@pytest.mark.faults
def test_a_reissue_sends_what_closed_since_again_once_although_everything_is_killed_and_the_cache_is_lost(
    patient: Pipeline,
) -> None:
    pipeline, job = patient, patient.job
    pipeline.publisher.start()
    with pipeline.load(22, sessions_per_second=10):
        job.start()
        pipeline.more_batches(3)
        made = pipeline.command_json("savepoint", "create", "good")
        pipeline.more_batches(4)

        # The job dies while it opens the generation that was asked for.
        with psycopg.connect(pipeline.dsn) as blocker:
            blocker.execute("LOCK TABLE outbox.generation IN SHARE MODE")
            with pipeline.begin(
                "savepoint", "restore", "good", "--policy", "reissue", "--yes", *WAIT
            ) as command:
                waits_for_the_lock(pipeline, "spark-job")
                job.crash()
                blocker.rollback()
                _, explanation = command.communicate(timeout=PATIENCE_S)
            assert command.returncode == 6, explanation
            assert "ended before it answered, and no job runs now" in explanation
        pipeline.wait_until(pipeline.job_has_gone, "the end of the job's connections")
        assert pipeline.generations() == [(1, "first", 0)]

        # The command dies while it opens the generation itself.
        with psycopg.connect(pipeline.dsn) as blocker:
            blocker.execute("LOCK TABLE outbox.generation IN SHARE MODE")
            with pipeline.begin(
                "savepoint", "restore", "good", "--policy", "reissue", "--yes", *WAIT
            ) as command:
                waits_for_the_lock(pipeline, "spark-job restore")
                command.send_signal(signal.SIGKILL)
                command.communicate(timeout=PATIENCE_S)
        assert pipeline.generations() == [(1, "first", 0)]
        found = pipeline.command_json("savepoint", "restore", "good", "--policy", "reissue", "--yes")
        assert (found["revision"], found["running"]) == (1, False)
        assert found["foreseen"]["outputs_closed_since"] > 0

        # Killed before its first batch, then after one, and the second time its cache is lost.
        job.start(**MENDED, OUTBOX_JOB__MAX_EVENTS_PER_BATCH="300")
        pipeline.wait_until(lambda: pipeline.owns(job), "the start", alive=(job,), timeout_s=PATIENCE_S)
        job.crash()
        pipeline.start_and_see("savepoint", **MENDED, OUTBOX_JOB__MAX_EVENTS_PER_BATCH="300")
        job.crash()
        pipeline.lose_cache()
        rebuilt = len(pipeline.rebuilt())
        pipeline.start_and_see("position", **MENDED)
        pipeline.wait_for_report()
        assert len(pipeline.rebuilt()) > rebuilt
        pipeline.more_batches(3)
    pipeline.finish(
        Share(ceiling=last_end(pipeline, 1)), Share(mended, revision=1, floor=of(made["end_offsets"]))
    )
    assert pipeline.generations() == [(1, "first", 0), (2, "savepoint", 1)]
    by_revision = pipeline.ask(
        "SELECT revision, bool_and(position('mended' IN encode(value, 'escape')) > 0)"
        " FROM outbox.event WHERE topic LIKE '%%pages' GROUP BY 1 ORDER BY 1"
    )
    assert by_revision == [(0, False), (1, True)]
    # Sent twice, on purpose: the same id, another revision, other bytes.
    twice = pipeline.ask(
        "SELECT count(*), bool_and(o.value IS DISTINCT FROM n.value) FROM outbox.event o JOIN outbox.event n USING (outbox_id)"
        " WHERE o.revision = 0 AND n.revision = 1 AND o.topic LIKE '%%pages'"
    )
    assert twice[0][0] > 0
    assert twice[0][1]


@pytest.mark.guarantee(126)
@pytest.mark.faults
def test_a_command_that_is_killed_while_it_waits_has_asked_all_the_same(patient: Pipeline) -> None:
    """And a stop reaches the job in the middle of its load, more than once."""
    pipeline, job = patient, patient.job
    pipeline.publisher.start()
    with pipeline.load(23, sessions_per_second=10):
        job.start()
        pipeline.more_batches(2)
        with psycopg.connect(pipeline.dsn) as blocker:
            blocker.execute("LOCK TABLE outbox.generation IN SHARE MODE")
            with pipeline.begin("savepoint", "restore", "--policy", "skip", "--yes") as command:
                waits_for_the_lock(pipeline, "spark-job")
                command.send_signal(signal.SIGKILL)
                command.communicate(timeout=PATIENCE_S)
        pipeline.wait_until(
            lambda: len(pipeline.generations()) == 2, "the restore", alive=(job,), timeout_s=PATIENCE_S
        )
        pipeline.more_batches(2)
        with pipeline.begin("stop", "--json", *WAIT) as one, pipeline.begin("stop", "--json", *WAIT) as other:
            answers = [json.loads(command.communicate(timeout=PATIENCE_S)[0]) for command in (one, other)]
        assert any(answer["stopped"] for answer in answers), answers
        assert job.wait(PATIENCE_S) == 0, job.tail()
        nobody: Any = pipeline.command_json("stop")
        assert not nobody["stopped"]
        assert "the last one ended" in nobody["text"]
        job.start()
        pipeline.more_batches(2)
    pipeline.finish()
    assert pipeline.generations() == [(1, "first", 0), (2, "skip", 0)]


def waits_for_the_lock(pipeline: Pipeline, application: str) -> None:
    """Wait until a connection of that name waits for a lock."""
    pipeline.wait_until(
        lambda: pipeline.ask(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = %s"
            " AND wait_event_type = 'Lock'",
            application,
        ),
        f"{application} at its insert",
        timeout_s=PATIENCE_S,
    )


def last_end(pipeline: Pipeline, generation: int) -> dict[int, int]:
    """Where a generation ended."""
    ((offsets,),) = pipeline.ask(
        "SELECT end_offsets FROM outbox.batch WHERE generation = %s ORDER BY batch_id DESC LIMIT 1",
        generation,
    )
    return of(offsets)


def of(offsets: dict[str, dict[str, int]]) -> dict[int, int]:
    """Offsets of the one topic, {partition: offset}."""
    (partitions,) = offsets.values()
    return {int(partition): offset for partition, offset in partitions.items()}
