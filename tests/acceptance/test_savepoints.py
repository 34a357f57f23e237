"""Savepoints, stop, restore and rescale while the load goes on: each output arrives as often as was asked for, and as computed then."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import TopicPartition

from devstack.kafka import KafkaServer
from tests.acceptance.expectation import Share
from tests.acceptance.options import Options
from tests.acceptance.pipeline import Pipeline
from tests.acceptance.transforms import mended

PATIENCE_S = 600.0
"""For a machine that does much else meanwhile."""

WAIT = ("--timeout", f"{PATIENCE_S:g}")

pytestmark = pytest.mark.timeout(1_800)

MENDED = {"OUTBOX_TRANSFORM__FUNCTION": "tests.acceptance.transforms:mended"}


@pytest.fixture
def patient(database: str, kafka: KafkaServer, topic_prefix: str, tmp_path: Path) -> Iterator[Pipeline]:
    """A pipeline in which no session times out: which record shows a silence may depend on the number of buckets, documented."""
    options: Options = {
        "session": {"timeout_s": 600},
        "job": {"owner_timeout_s": PATIENCE_S, "max_events_per_batch": 20_000},
    }
    with Pipeline(database, kafka.bootstrap_servers, topic_prefix, tmp_path, options=options) as made:
        yield made


def test_a_savepoint_made_under_load_is_restored_without_a_repetition_and_a_rescale_does_no_harm(
    patient: Pipeline,
) -> None:
    pipeline, job = patient, patient.job
    pipeline.publisher.start()
    with pipeline.load(21, sessions_per_second=10):
        job.start()
        more_batches(pipeline, 3)
        pid = job.pid
        made = pipeline.command_json("savepoint", "create", "early")
        more_batches(pipeline, 3)
        (shown,) = pipeline.command_json("savepoint", "list")
        assert (shown["name"], shown["state"], shown["batch"]) == ("early", "alive", made["batch"])

        # While the job runs: it goes back between two batches, in the same process.
        restored = pipeline.command_json("savepoint", "restore", "early", "--yes", *WAIT)
        assert restored["running"]
        assert restored["resumes_at"] == made["safe_offsets"]
        assert restored["foreseen"]["sessions_closed_since"] > 0
        more_batches(pipeline, 3)

        refused = pipeline.command("rescale", "--buckets", "6", "--shuffle-partitions", "4", "--yes", code=2)
        assert "choose a multiple" in refused
        for buckets, partitions in ((8, 4), (4, 2)):
            scaled = pipeline.command_json(
                "rescale", "--buckets", str(buckets), "--shuffle-partitions", str(partitions), "--yes", *WAIT
            )
            assert scaled["running"]
            more_batches(pipeline, 3)
            status = pipeline.command_json("status")
            assert (status["buckets"], status["shuffle_partitions"]) == (buckets, partitions)
            used = pipeline.ask(
                "SELECT count(*) FROM outbox.bucket WHERE generation = (SELECT max(generation) FROM outbox.generation)"
            )
            assert 0 < used[0][0] <= buckets
        assert job.pid == pid

        stopped = pipeline.command_json("stop", "--savepoint", "end", *WAIT)
        assert stopped["stopped"]
        assert job.wait(PATIENCE_S) == 0, job.tail()
        assert stopped["savepoint"]["batch"] == pipeline.batches()
        assert pipeline.owner() is None

        # While nobody runs: the command opens the generation, the next start goes on with it.
        restored = pipeline.command_json("savepoint", "restore", "early", "--policy", "skip", "--yes")
        assert not restored["running"]
        job.start()
        more_batches(pipeline, 3)
    expected = pipeline.expectation()
    pipeline.complete(expected)
    pipeline.stop()
    pipeline.assert_exactly_once(expected)
    assert pipeline.generations() == [
        (1, "first", 0),
        (2, "savepoint", 0),
        (3, "rescale", 0),
        (4, "rescale", 0),
        (5, "savepoint", 0),
    ]

    # Retention takes what the first savepoint needs.
    (safe,) = made["safe_offsets"].values()
    deleted = pipeline.admin.delete_records(
        [TopicPartition(pipeline.input, int(partition), offset + 1) for partition, offset in safe.items()]
    )
    for answer in deleted.values():
        answer.result(60)
    listed = pipeline.command_json("savepoint", "list")
    assert [(found["name"], found["state"]) for found in listed] == [("early", "expired"), ("end", "alive")]
    refused = pipeline.command("savepoint", "restore", "early", "--yes", code=5)
    assert "Kafka has deleted input that is still needed" in refused
    assert "spark-job savepoint restore early --policy skip --accept-data-loss" in refused


def test_a_reissue_sends_what_closed_since_again_once_although_its_checkpoint_is_lost_and_everything_is_killed(
    patient: Pipeline,
) -> None:
    pipeline, job = patient, patient.job
    pipeline.publisher.start()
    with pipeline.load(22, sessions_per_second=10):
        job.start()
        more_batches(pipeline, 3)
        made = pipeline.command_json("savepoint", "create", "good")
        more_batches(pipeline, 4)

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
        done = pipeline.ask("SELECT done_offsets FROM outbox.batch ORDER BY batch_id DESC LIMIT 1")[0][0]

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

        # Killed before its first batch, then after one, and the second time without its checkpoint.
        job.start(**MENDED, OUTBOX_JOB__MAX_EVENTS_PER_BATCH="300")
        pipeline.wait_until(lambda: pipeline.owns(job), "the start", alive=(job,), timeout_s=PATIENCE_S)
        job.crash()
        job.start(**MENDED, OUTBOX_JOB__MAX_EVENTS_PER_BATCH="300")
        pipeline.wait_until(
            lambda: pipeline.position().stored >= 0,
            "a batch of the reissue",
            alive=(job,),
            timeout_s=PATIENCE_S,
        )
        job.crash()
        pipeline.lose_checkpoint()
        job.start(**MENDED)
        more_batches(pipeline, 3)
    shares = (Share(ceiling=of(done)), Share(mended, revision=1, floor=of(made["done_offsets"])))
    expected = pipeline.expectation(*shares)
    pipeline.complete(expected)
    pipeline.stop()
    pipeline.assert_exactly_once(expected)
    assert pipeline.generations() == [(1, "first", 0), (2, "savepoint", 1), (3, "checkpoint_lost", 1)]
    by_generation = pipeline.ask(
        "SELECT generation, revision, count(*), bool_and(position('mended' IN encode(value, 'escape')) > 0)"
        " FROM outbox.event WHERE topic LIKE '%%pages' GROUP BY 1, 2 ORDER BY 1, 2"
    )
    assert [(generation, revision) for generation, revision, _, _ in by_generation] == [
        (1, 0),
        (2, 1),
        (3, 1),
    ]
    assert [whole for *_, whole in by_generation] == [False, True, True]
    # Sent twice, on purpose: the same id, another revision, other bytes.
    twice = pipeline.ask(
        "SELECT count(*), bool_and(o.value IS DISTINCT FROM n.value) FROM outbox.event o JOIN outbox.event n USING (outbox_id)"
        " WHERE o.revision = 0 AND n.revision = 1 AND o.topic LIKE '%%pages'"
    )
    assert twice[0][0] > 0
    assert twice[0][1]


@pytest.mark.faults
def test_a_command_that_is_killed_while_it_waits_has_asked_all_the_same(patient: Pipeline) -> None:
    """And a stop reaches the job in the middle of its load, more than once."""
    pipeline, job = patient, patient.job
    pipeline.publisher.start()
    with pipeline.load(23, sessions_per_second=10):
        job.start()
        more_batches(pipeline, 2)
        with psycopg.connect(pipeline.dsn) as blocker:
            blocker.execute("LOCK TABLE outbox.generation IN SHARE MODE")
            with pipeline.begin("rescale", "--buckets", "4", "--shuffle-partitions", "1", "--yes") as command:
                waits_for_the_lock(pipeline, "spark-job")
                command.send_signal(signal.SIGKILL)
                command.communicate(timeout=PATIENCE_S)
        pipeline.wait_until(
            lambda: len(pipeline.generations()) == 2, "the rescale", alive=(job,), timeout_s=PATIENCE_S
        )
        more_batches(pipeline, 2)
        with pipeline.begin("stop", "--json", *WAIT) as one, pipeline.begin("stop", "--json", *WAIT) as other:
            answers = [json.loads(command.communicate(timeout=PATIENCE_S)[0]) for command in (one, other)]
        assert any(answer["stopped"] for answer in answers), answers
        assert job.wait(PATIENCE_S) == 0, job.tail()
        nobody: Any = pipeline.command_json("stop")
        assert not nobody["stopped"]
        assert "the last one ended" in nobody["text"]
        job.start()
        more_batches(pipeline, 2)
    expected = pipeline.expectation()
    pipeline.complete(expected)
    pipeline.stop()
    pipeline.assert_exactly_once(expected)
    assert pipeline.generations() == [(1, "first", 0), (2, "rescale", 0)]


def more_batches(pipeline: Pipeline, number: int) -> None:
    """Wait until the job has committed that many more."""
    enough = pipeline.batches() + number
    pipeline.wait_until(
        lambda: pipeline.batches() >= enough,
        f"{number} more batches",
        alive=(pipeline.job,),
        timeout_s=PATIENCE_S,
    )


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


def of(offsets: dict[str, dict[str, int]]) -> dict[int, int]:
    """Offsets of the one topic, {partition: offset}."""
    (partitions,) = offsets.values()
    return {int(partition): offset for partition, offset in partitions.items()}
