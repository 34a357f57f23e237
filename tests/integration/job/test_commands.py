"""`spark-job savepoint`, `stop` and `rescale` where no job runs: what they say, what they do, what they refuse."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from psycopg.rows import TupleRow
from psycopg.types.json import Jsonb
from typer.testing import CliRunner

from db.errors import FencedError, OutboxError
from db.settings import load_settings
from db.topic_ids import topic_id_text
from devstack.kafka import KafkaServer
from devstack.topics import create_topics
from spark_job import OutputEvent, moves, savepoints, writer
from spark_job.assembly import described
from spark_job.cli import app
from spark_job.commands import common
from spark_job.offsets import Offsets
from tests.acceptance.service import ROOT, wait_until
from tests.integration.job.sink_world import P0, P1, TOPIC_ID, World, session, summary

Connection = psycopg.Connection[TupleRow]
ROLE = "-c role=outbox_writer"
RECORDS = 100
EVENTS = [OutputEvent("out", b"1"), OutputEvent("out", b"2")]


class Outbox:
    """An outbox that a job has written into and left, and its real input topic."""

    def __init__(self, dsn: str, connection: Connection, bootstrap: str, topic: str) -> None:
        self.dsn, self.connection, self.bootstrap, self.topic = dsn, connection, bootstrap, topic
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        description = self.admin.describe_topics(TopicCollection([topic]))[topic].result()
        self.topic_id = topic_id_text(description.topic_id)
        self.world = World(connection)

    def batch(
        self, number: int, start: tuple[int, int], end: tuple[int, int], *ends: int, opened: int | None = None
    ) -> None:
        """Write a batch with a session of ten events in partition 0 for each of `ends`; one that began at `opened` stays open."""
        self.world.plan(number, start, end)
        rows = [session(f"key-{at}", at - 9, at, EVENTS) for at in ends]
        self.world.write(number, *rows, summary(0, {} if opened is None else {0: opened}, 10))

    def leave(self) -> None:
        """End the run; from now on everything names the real topic."""
        writer.give_back(self.connection, self.world.run_id)
        with psycopg.connect(self.dsn, autocommit=True) as owner:
            for table, columns in {
                "generation": ("start_offsets", "high_water", "topics"),
                "batch": ("start_offsets", "end_offsets", "done_offsets", "safe_offsets"),
            }.items():
                for column in columns:
                    text = f"UPDATE outbox.{table} SET {column} = replace({column}::text, %s, %s)::jsonb"  # noqa: S608
                    owner.execute(text.encode(), [TOPIC_ID, self.topic_id])
            owner.execute("UPDATE outbox.generation SET topics = %s", [Jsonb({self.topic_id: self.topic})])
            owner.execute(
                "UPDATE outbox.generation SET assembly = %s", [Jsonb(described(load_settings(None)))]
            )
            owner.execute(
                "UPDATE outbox.session_output SET session_topic_ids = array_replace(session_topic_ids, %s, %s)",
                [TOPIC_ID, self.topic_id],
            )

    def delete_before(self, partition: int, offset: int) -> None:
        """Let retention take the records before `offset`."""
        answers = self.admin.delete_records([TopicPartition(self.topic, partition, offset)])
        for answer in answers.values():
            answer.result(60)

    def offsets(self, first: int, second: int) -> dict[str, dict[str, int]]:
        """Offsets of the two partitions, as the commands show them."""
        return {self.topic_id: {"0": first, "1": second}}

    def generations(self) -> list[Any]:
        """(number, reason, policy, revision) of each."""
        return self.connection.execute(
            "SELECT generation, reason, policy, revision FROM outbox.generation ORDER BY generation"
        ).fetchall()


@pytest.fixture
def outbox(
    database: str, kafka: KafkaServer, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Outbox]:
    """Batch 1 ends at 40 with a session open since 31; batches 2 and 3 close four more sessions."""
    topic = f"{topic_prefix}in"
    create_topics(kafka.bootstrap_servers, {topic: (2, {})})
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for partition in (0, 1):
        for _ in range(RECORDS):
            producer.produce(topic, b"x", partition=partition)
    producer.flush()
    for name in [name for name in os.environ if name.startswith("OUTBOX_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OUTBOX_POSTGRES__DSN", f"{database}?options=-c%20role%3Doutbox_writer")
    monkeypatch.setenv("OUTBOX_KAFKA__BOOTSTRAP_SERVERS", kafka.bootstrap_servers)
    monkeypatch.setenv("OUTBOX_SOURCE__TOPICS", json.dumps([topic]))
    with psycopg.connect(database, autocommit=True, options=ROLE) as connection:
        made = Outbox(database, connection, kafka.bootstrap_servers, topic)
        made.batch(0, (0, 0), (40, 20), 9, 19, opened=31)
        run("savepoint", "create", "monday")
        made.batch(1, (40, 20), (60, 20), 45, 55, opened=58)
        made.batch(2, (60, 20), (90, 20), 70, 80)
        made.leave()
        yield made


def run(*arguments: str, code: int = 0, answer: str | None = None) -> str:
    """Run `spark-job`; return what it printed, or the error's text."""
    result = CliRunner().invoke(app, arguments, input=answer)
    error = result.exception
    if isinstance(error, OutboxError):
        assert error.exit_code == code, str(error)
        return str(error)
    assert result.exit_code == code, (result.output, error)
    return result.stdout


def run_json(*arguments: str) -> Any:
    """Run it with --json and read that."""
    return json.loads(run(*arguments, "--json"))


def test_a_savepoint_is_shown_with_what_kafka_still_has_of_it(outbox: Outbox) -> None:
    (found,) = run_json("savepoint", "list")
    assert found["name"] == "monday"
    assert (found["generation"], found["batch"], found["revision"]) == (1, 1, 0)
    assert found["safe_offsets"] == outbox.offsets(31, 20)
    assert found["done_offsets"] == outbox.offsets(40, 20)
    assert (found["state"], found["reasons"], found["events_after"]) == ("alive", [], 2 * RECORDS - 31 - 20)

    outbox.delete_before(0, 31)
    assert run_json("savepoint", "list")[0]["state"] == "alive"
    outbox.delete_before(0, 50)
    (found,) = run_json("savepoint", "list")
    assert found["state"] == "expired"
    assert found["reasons"] == [f"{outbox.topic}/0: needs offset 31, Kafka's first is 50"]
    assert found["events_after"] == 2 * RECORDS - 50 - 20
    assert "expired" in run("savepoint", "list")


def test_the_list_is_shown_although_kafka_does_not_answer(
    outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTBOX_KAFKA__BOOTSTRAP_SERVERS", "127.0.0.1:1")
    monkeypatch.setenv("OUTBOX_KAFKA__REQUEST_TIMEOUT_S", "1")
    (found,) = run_json("savepoint", "list")
    assert (found["name"], found["state"], found["events_after"]) == ("monday", "unknown", None)


def test_names_are_unique_until_deleted(outbox: Outbox) -> None:
    assert "spark-job savepoint delete monday" in run("savepoint", "create", "monday", code=2)
    assert "spark-job savepoint delete monday" in run("stop", "--savepoint", "monday", code=2)
    assert "cannot be a savepoint's name" in run("savepoint", "create", "mon day", code=2)
    assert run_json("savepoint", "delete", "monday") == {"deleted": "monday"}
    assert run_json("savepoint", "list") == []
    assert "no savepoint 'monday'" in run("savepoint", "delete", "monday", code=2)
    assert run_json("savepoint", "create", "monday")["batch"] == 3


def test_a_stop_where_nobody_runs_makes_the_savepoint_all_the_same(outbox: Outbox) -> None:
    found = run_json("stop", "--savepoint", "end")
    assert (found["stopped"], found["savepoint"]["batch"]) == (False, 3)
    assert run_json("stop") == {"stopped": False, "text": "no job runs", "savepoint": None}


def test_restore_with_skip_says_what_it_reads_again_and_sends_nothing_twice(outbox: Outbox) -> None:
    found = run_json("savepoint", "restore", "monday", "--yes")
    assert found["foreseen"] | {"explanation": ""} == {
        "reason": "savepoint",
        "policy": "skip",
        "revision": 0,
        "savepoint": "monday",
        "start_offsets": outbox.offsets(31, 20),
        "high_water": outbox.offsets(90, 20),
        "read_again": 90 - 31,
        "sessions_closed_since": 4,
        "outputs_closed_since": 8,
        "offsets_lost": 0,
        "explanation": "",
    }
    assert (found["generation"], found["restored"], found["running"]) == (2, "savepoint", False)
    assert (found["resumes_at"], found["high_water"]) == (outbox.offsets(31, 20), outbox.offsets(90, 20))
    assert outbox.generations() == [(1, "first", "skip", 0), (2, "savepoint", "skip", 0)]
    assert writer.read_owner(outbox.connection).run_id is None


def test_restore_with_reissue_sends_again_from_the_savepoint_on_with_a_new_revision(outbox: Outbox) -> None:
    for revision in (1, 2):
        found = run_json("savepoint", "restore", "monday", "--policy", "reissue", "--yes")
        assert (found["policy"], found["revision"]) == ("reissue", revision)
        assert found["high_water"] == outbox.offsets(40, 20)
        assert found["foreseen"]["sessions_closed_since"] == 4
    # Back to skip: what the first generation had done still counts.
    found = run_json("savepoint", "restore", "monday", "--yes")
    assert (found["policy"], found["revision"], found["high_water"]) == ("skip", 2, outbox.offsets(90, 20))


def test_a_restore_says_first_what_it_will_do_and_asks(
    outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "say --yes" in run("savepoint", "restore", "monday", code=2)
    monkeypatch.setattr(common, "somebody_to_ask", lambda: True)
    result = CliRunner().invoke(app, ["savepoint", "restore", "monday", "--policy", "reissue"], input="n\n")
    assert result.exit_code == 1
    said = " ".join(result.stderr.split())
    assert (
        "4 sessions with 8 outputs that closed since are computed again and sent again, with outbox-revision 1"
        in said
    )
    assert "reads 59 offsets again" in said
    assert "No job runs" in said
    assert outbox.generations() == [(1, "first", "skip", 0)]
    run("savepoint", "restore", "monday", answer="y\n")
    assert outbox.generations()[-1] == (2, "savepoint", "skip", 0)


def test_an_expired_savepoint_is_refused_with_what_is_lost(outbox: Outbox) -> None:
    outbox.delete_before(0, 35)
    refused = run("savepoint", "restore", "monday", "--yes", code=5)
    assert f"{outbox.topic}/0: offsets 31 to 34 (4)" in refused
    assert "--accept-data-loss" in refused
    assert "spark-job run" not in refused
    assert outbox.generations() == [(1, "first", "skip", 0)]
    found = run_json("savepoint", "restore", "monday", "--yes", "--accept-data-loss")
    assert found["foreseen"]["offsets_lost"] == 4
    assert found["resumes_at"] == outbox.offsets(35, 20)


def test_an_unknown_savepoint_and_uneven_buckets_are_refused(outbox: Outbox) -> None:
    assert "Did you mean 'monday'" in run("savepoint", "restore", "mondy", "--yes", code=2)
    assert "choose a multiple" in run(
        "rescale", "--buckets", "6", "--shuffle-partitions", "4", "--yes", code=2
    )
    assert outbox.generations() == [(1, "first", "skip", 0)]


def test_a_rescale_goes_on_at_the_current_position(outbox: Outbox) -> None:
    found = run_json("rescale", "--buckets", "16", "--shuffle-partitions", "4", "--yes")
    assert (found["reason"], found["buckets"], found["shuffle_partitions"]) == ("rescale", 16, 4)
    assert (found["resumes_at"], found["high_water"]) == (outbox.offsets(90, 20), outbox.offsets(90, 20))
    assert (found["read_again"], found["foreseen"]["read_again"]) == (0, 0)
    assert outbox.generations()[-1] == (2, "rescale", "skip", 0)


def test_a_run_that_hangs_is_fenced_by_a_restore(outbox: Outbox) -> None:
    """It must not write behind the new generation when it wakes."""
    with psycopg.connect(outbox.dsn, autocommit=True, options=ROLE) as hanging:
        with hanging.transaction():
            writer.take_over(hanging, outbox.world.run_id, load_settings(None).job, force=False)
        hanging.execute("UPDATE outbox.writer SET heartbeat_at = clock_timestamp() - interval '1 hour'")
        run("savepoint", "restore", "monday", "--yes")
        with pytest.raises(FencedError, match="nobody does"), hanging.transaction():
            writer.lock_and_check(hanging, outbox.world.run_id)
    assert writer.read_owner(outbox.connection).run_id is None


def test_a_restore_killed_while_it_opens_the_generation_leaves_nothing_and_can_be_given_again(
    outbox: Outbox,
) -> None:
    command = [sys.executable, "-m", "spark_job", "savepoint", "restore", "monday", "--yes"]
    with psycopg.connect(outbox.dsn) as blocker:
        blocker.execute("LOCK TABLE outbox.generation IN SHARE MODE")
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            waiting = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            with psycopg.connect(outbox.dsn, autocommit=True) as observer:
                wait_until(
                    lambda: observer.execute(waiting).fetchall(), "the command at its insert", timeout_s=120
                )
                process.send_signal(signal.SIGKILL)
                process.communicate(timeout=60)
        finally:
            process.kill()
            process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    run("savepoint", "restore", "monday", "--yes")
    assert outbox.generations() == [(1, "first", "skip", 0), (2, "savepoint", "skip", 0)]


def test_what_closed_since_counts_each_session_once_with_its_newest_outputs(outbox: Outbox) -> None:
    """A reissue has sent some of them a second time, with other outputs."""
    again = World(outbox.connection, Offsets({P0: 40, P1: 20}), revision=1)
    again.plan(0, (0, 0), (60, 20))
    again.write(0, session("key-45", 36, 45, [OutputEvent("out", b"3")]), summary(0, {}, 10))
    with psycopg.connect(outbox.dsn, autocommit=True) as owner:
        owner.execute(
            "UPDATE outbox.session_output SET session_topic_ids = array_replace(session_topic_ids, %s, %s)",
            [TOPIC_ID, outbox.topic_id],
        )
    savepoint = savepoints.get(outbox.connection, "monday")
    assert moves.closed_since(outbox.connection, savepoint) == (4, 7)
