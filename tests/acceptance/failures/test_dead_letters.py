"""Dead letters of a running job, retried by the command; and the bound on what may be open."""

import signal
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest

from devstack.kafka import KafkaServer
from examples.clickstream.events import Record, encode
from tests.support.pipeline import verdict
from tests.support.pipeline.expectation import Output, Share
from tests.support.pipeline.feed import write
from tests.support.pipeline.pipeline import Pipeline
from tests.support.pipeline.transforms import forgiving
from tests.support.reading import end_offsets

FAILED = "transform_failed"
TIMEOUT_S = 500.0
MENDED = {"OUTBOX_TRANSFORM__FUNCTION": "tests.support.pipeline.transforms:forgiving"}


@pytest.mark.guarantee(62)
@pytest.mark.faults
def test_letters_are_retried_by_a_mended_transform_while_the_job_runs(pipeline: Pipeline) -> None:
    """Exactly once, though a retry is killed on the way; the job keeps the outbox, the publisher its cursors."""
    job = pipeline.job
    pipeline.publisher.start()
    pipeline.feed(6, sessions=600)
    job.start()
    pipeline.wait_until(
        lambda: letters(pipeline, "open") >= 4, "failed transforms", alive=(job,), timeout_s=TIMEOUT_S
    )
    owner = pipeline.ask("SELECT run_id, backend_pid FROM outbox.writer")
    with psycopg.connect(pipeline.dsn) as blocker:
        # The third letter cannot be resolved: the retry waits in the middle of its third transaction.
        blocker.execute(
            "SELECT FROM outbox.dead_letter WHERE dead_letter_id = (SELECT dead_letter_id FROM outbox.dead_letter"
            " WHERE reason = %s AND state = 'open' ORDER BY dead_letter_id OFFSET 2 LIMIT 1) FOR UPDATE",
            (FAILED,),
        )
        killed = pipeline.begin(
            "dead-letters", "retry", "--reason", FAILED, "--yes", "--letters-per-batch", "1", **MENDED
        )
        try:
            pipeline.wait_until(
                lambda: pipeline.ask(
                    "SELECT FROM pg_stat_activity WHERE datname = current_database()"
                    " AND application_name = 'spark-job dead-letters' AND wait_event_type = 'Lock'"
                    " AND query LIKE '%%dead_letter%%'"
                ),
                "a retry that waits to resolve its letter",
                alive=(job,),
                timeout_s=TIMEOUT_S,
            )
        finally:
            killed.kill()
            killed.communicate()
            assert killed.returncode == -signal.SIGKILL
    assert letters(pipeline, "resolved") == 2
    again = pipeline.command_json("dead-letters", "retry", "--reason", FAILED, "--yes", **MENDED)
    assert (again["failed"], again["refused"]) == ([], [])
    stored = stream_batches(pipeline)
    pipeline.feed(7, sessions=400)
    pipeline.wait_until(
        lambda: stream_batches(pipeline) > stored, "more batches", alive=(job,), timeout_s=TIMEOUT_S
    )
    assert pipeline.ask("SELECT run_id, backend_pid FROM outbox.writer") == owner
    expected = pipeline.expectation()
    pipeline.complete(expected)
    listed = pipeline.command_json("dead-letters", "list", "--reason", FAILED, "--limit", "1", **MENDED)
    last = pipeline.command_json("dead-letters", "retry", "--reason", FAILED, "--yes", **MENDED)
    assert sum(row["letters"] for row in listed["counts"]) == len(last["retried"])
    assert (last["refused"], last["failed"]) == ([], [])
    assert letters(pipeline, "open") == 0
    pipeline.complete(expected)
    pipeline.stop()

    wanted = pipeline.expectation(Share(forgiving))
    refused = [letter for letter in expected.letters if letter.reason == FAILED]
    assert letters(pipeline, "resolved") == len(refused) == len(expected.letters) - len(wanted.letters) > 0
    ends = end_offsets(pipeline.bootstrap, pipeline.outputs, committed=True)
    pipeline.wait_until(lambda: pipeline.watcher.has_read_to(ends), "reading the output topics to their ends")
    got = [Output(e.topic, e.key, e.value, e.own_headers, e.outbox_id) for e in pipeline.watcher.seen]
    verdict.assert_same(Counter(wanted.outputs), Counter(got), "events in Kafka")
    verdict.assert_delivery_agrees(pipeline.dsn)
    kinds = pipeline.ask(
        "SELECT kind, sum(sessions), bool_and(generation = 1), count(*) = max(spark_batch) + 1 FROM outbox.batch GROUP BY kind"
    )
    assert sorted(kinds) == [
        ("retry", len(refused), True, None),
        ("stream", wanted.sessions - len(refused), True, True),
    ]


@pytest.mark.guarantee(16)
@pytest.mark.faults
def test_over_the_bound_of_open_sessions_the_oldest_end_and_the_job_continues(
    database: str, kafka: KafkaServer, topic_prefix: str, tmp_path: Path
) -> None:
    """The same ones with a cache, and after a loss of it."""
    options = {"session": {"max_open_bytes": 65_536}}
    with Pipeline(database, kafka.bootstrap_servers, topic_prefix, tmp_path, options=options) as pipeline:
        begun = datetime.now(UTC)
        keys = [f"open-{number:04}" for number in range(400)]
        pipeline.publisher.start()
        pipeline.job.start()
        for part in (keys[:200], keys[200:]):
            write(pipeline.bootstrap, pipeline.input, iter(starts(part, begun)))
            pipeline.wait_for_input(pipeline.expectation())
            pipeline.crash()
            pipeline.lose_cache()
            pipeline.job.start()
        write(
            pipeline.bootstrap,
            pipeline.input,
            iter([encode(key, "end_event", begun + timedelta(seconds=1), "end", {}) for key in keys]),
        )
        expected = pipeline.finish()
        reasons = Counter(letter.reason for letter in expected.letters)
        assert (reasons["too_large"] > 200, expected.sessions > 20) == (True, True)
        assert pipeline.restarts() == []


def starts(keys: list[str], at: datetime) -> list[Record]:
    """A start and an entry of 2 kB for each key."""
    return [
        encode(key, kind, at, kind, {"fill": "x" * 1_000})
        for kind in ("start_event", "entry_event")
        for key in keys
    ]


def stream_batches(pipeline: Pipeline) -> int:
    """Batches of the job, without those of the retries."""
    return int(pipeline.ask("SELECT count(*) FROM outbox.batch WHERE kind = 'stream'")[0][0])


def letters(pipeline: Pipeline, state: str) -> int:
    """How many letters of failed transforms are in that state."""
    ((number,),) = pipeline.ask(
        "SELECT count(*) FROM outbox.dead_letter WHERE reason = %s AND state = %s", FAILED, state
    )
    return int(number)
