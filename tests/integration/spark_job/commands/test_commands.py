"""`spark-job savepoint`, `stop` and `fork` where no job runs: what they say, what they do, what they refuse."""

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner

from db.connection import Connection
from devstack.databases import PostgresServer
from devstack.kafka import KafkaServer
from devstack.topics import create_topics
from service.errors import MovedError, OutboxError
from service.kafka.topic_ids import topic_id_text
from service.settings import load_settings
from spark_job import OutputEvent
from spark_job.cli import app
from spark_job.ledger import ownership, savepoints
from spark_job.ledger.assembly_rules import stored_rules
from spark_job.ledger.generations import Generation, newest_generation
from spark_job.savepoints import exported as exported_savepoints
from tests.support.paths import ROOT
from tests.support.sink.batches import TOPIC_ID, SinkRun, session, still_open
from tests.support.waiting import wait_until

ROLE = "-c role=outbox_writer"
RECORDS = 100
EVENTS = [OutputEvent("out", b"1"), OutputEvent("out", b"2")]


class JobOutbox:
    """An outbox that a job has written into and left, and its real input topic."""

    def __init__(self, dsn: str, connection: Connection, bootstrap: str, topic: str) -> None:
        self.dsn, self.connection, self.topic = dsn, connection, topic
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        description = self.admin.describe_topics(TopicCollection([topic]))[topic].result()
        self.topic_id = topic_id_text(description.topic_id)
        self.sink_run = SinkRun(
            connection, topic=(topic, self.topic_id), assembly=stored_rules(load_settings(None))
        )

    def batch(
        self,
        number: int,
        start: tuple[int, int],
        end: tuple[int, int],
        *ends: int,
        opened: tuple[int, ...] = (),
    ) -> None:
        """Write a batch with a session of ten events in partition 0 for each of `ends`; those that began at `opened` stay open."""
        self.sink_run.plan(number, start, end)
        rows = [session(f"key-{at}", at - 9, at, EVENTS) for at in ends]
        self.sink_run.write(number, *rows, still_open(0, *opened))

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
) -> Iterator[JobOutbox]:
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
        made = JobOutbox(database, connection, kafka.bootstrap_servers, topic)
        made.batch(0, (0, 0), (40, 20), 9, 19, opened=(31,))
        run("savepoint", "create", "monday")
        made.batch(1, (40, 20), (60, 20), 45, 55, opened=(58,))
        made.batch(2, (60, 20), (90, 20), 70, 80, opened=(85,))
        ownership.give_back(connection, made.sink_run.run_id)
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


@pytest.mark.guarantee(168)
def test_a_savepoint_is_shown_with_what_kafka_still_has_of_it(outbox: JobOutbox) -> None:
    (found,) = run_json("savepoint", "list")
    assert found["name"] == "monday"
    assert (found["generation"], found["batch"], found["revision"]) == (1, 1, 0)
    assert found["safe_offsets"] == outbox.offsets(31, 20)
    assert found["end_offsets"] == outbox.offsets(40, 20)
    assert found["open_sessions"] == 1
    assert (found["state"], found["reasons"], found["flags"]) == ("alive", [], [])
    assert found["events_after"] == 2 * RECORDS - 40 - 20

    outbox.delete_before(0, 31)
    assert run_json("savepoint", "list")[0]["state"] == "alive"
    outbox.delete_before(0, 50)
    (found,) = run_json("savepoint", "list")
    assert found["state"] == "expired"
    (reason,) = found["reasons"]
    assert f"{outbox.topic}/0: offsets 31 to 49 (19)" in reason
    assert found["events_after"] == 2 * RECORDS - 50 - 20
    shown = run("savepoint", "list")
    assert "expired" in shown
    assert f"  {reason}\n  restore it with {found['flags'][0]}\n" in shown

    outbox.connection.execute("SET ROLE NONE")
    outbox.connection.execute(
        "UPDATE outbox.savepoint SET topics = jsonb_build_object('former-id', %s::text)", [outbox.topic]
    )
    assert run_json("savepoint", "list")[0]["flags"] is None
    assert "  no flag restores it\n" in run("savepoint", "list")


def test_the_list_is_shown_although_kafka_does_not_answer(
    outbox: JobOutbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTBOX_KAFKA__BOOTSTRAP_SERVERS", "127.0.0.1:1")
    monkeypatch.setenv("OUTBOX_KAFKA__REQUEST_TIMEOUT_S", "1")
    (found,) = run_json("savepoint", "list")
    assert (found["name"], found["state"], found["events_after"]) == ("monday", "unknown", None)


def test_names_are_unique_until_deleted(outbox: JobOutbox) -> None:
    assert "spark-job savepoint delete monday" in run("savepoint", "create", "monday", code=2)
    assert "spark-job savepoint delete monday" in run("stop", "--savepoint", "monday", code=2)
    assert "cannot be a savepoint's name" in run("savepoint", "create", "mon day", code=2)
    assert run_json("savepoint", "delete", "monday") == {"deleted": "monday"}
    assert run_json("savepoint", "list") == []
    assert "no savepoint 'monday'" in run("savepoint", "delete", "monday", code=2)
    assert run_json("savepoint", "create", "monday")["batch"] == 3


def test_a_stop_where_nobody_runs_makes_the_savepoint_all_the_same(outbox: JobOutbox) -> None:
    found = run_json("stop", "--savepoint", "end")
    assert (found["stopped"], found["savepoint"]["batch"]) == (False, 3)
    assert run_json("stop") == {"stopped": False, "text": "no job runs", "savepoint": None}


@pytest.mark.guarantee(168)
def test_a_skip_continues_at_the_greatest_position_and_sends_nothing_twice(outbox: JobOutbox) -> None:
    found = run_json("savepoint", "restore", "--yes")
    assert found["foreseen"] | {"explanation": ""} == {
        "reason": "skip",
        "policy": "skip",
        "revision": 0,
        "savepoint": None,
        "start_offsets": outbox.offsets(90, 20),
        "sessions_closed_since": 0,
        "outputs_closed_since": 0,
        "offsets_lost": 0,
        "explanation": "",
    }
    assert (found["generation"], found["restored"], found["running"]) == (2, "savepoint", False)
    assert (found["resumes_at"], found["open_sessions"]) == (outbox.offsets(90, 20), 1)
    assert outbox.generations() == [(1, "first", "skip", 0), (2, "skip", "skip", 0)]
    assert ownership.read_owner(outbox.connection).run_id is None


@pytest.mark.guarantee(51)
def test_a_reissue_sends_again_from_the_savepoint_on_with_a_new_revision(outbox: JobOutbox) -> None:
    for revision in (1, 2):
        found = run_json("savepoint", "restore", "monday", "--policy", "reissue", "--yes")
        assert (found["policy"], found["revision"], found["savepoint"]) == ("reissue", revision, "monday")
        assert (found["resumes_at"], found["open_sessions"]) == (outbox.offsets(40, 20), 1)
        assert (found["foreseen"]["sessions_closed_since"], found["foreseen"]["outputs_closed_since"]) == (
            4,
            8,
        )
    # Back to where the first generation was.
    found = run_json("savepoint", "restore", "--policy", "skip", "--yes")
    assert (found["policy"], found["revision"]) == ("skip", 2)
    assert (found["resumes_at"], found["open_sessions"]) == (outbox.offsets(90, 20), 1)


@pytest.mark.guarantee(90)
def test_a_restore_says_first_what_it_will_do_and_asks(
    outbox: JobOutbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    reissue = ["savepoint", "restore", "monday", "--policy", "reissue"]
    assert "say --yes" in run(*reissue, code=2)
    monkeypatch.setattr("service.commands.confirm.somebody_to_ask", lambda: True)
    result = CliRunner().invoke(app, reissue, input="n\n")
    assert result.exit_code == 1
    said = " ".join(result.stderr.split())
    assert "computed and sent again, with outbox-revision 1: the outbox has 4 sessions with 8 outputs" in said
    assert f"It continues at {outbox.topic}/0: 40, {outbox.topic}/1: 20." in said
    assert "No job runs" in said
    assert outbox.generations() == [(1, "first", "skip", 0)]
    run(*reissue, answer="y\n")
    assert outbox.generations()[-1] == (2, "savepoint", "reissue", 1)


def test_a_dry_run_of_a_restore_says_what_it_would_do_and_refuses_what_would_be_refused(
    outbox: JobOutbox,
) -> None:
    reissue = ["savepoint", "restore", "monday", "--policy", "reissue", "--dry-run"]
    found = run_json(*reissue)
    assert (found["dry_run"], found["running"]) == (True, False)
    assert (found["foreseen"]["revision"], found["foreseen"]["outputs_closed_since"]) == (1, 8)
    said = run(*reissue)
    assert f"It continues at {outbox.topic}/0: 40, {outbox.topic}/1: 20." in said
    assert "No job runs" in said
    outbox.delete_before(0, 35)
    assert "--accept-data-loss" in run(*reissue, code=5)
    assert outbox.generations() == [(1, "first", "skip", 0)]


@pytest.mark.guarantee(168)
def test_an_expired_savepoint_is_refused_with_what_is_lost(outbox: JobOutbox) -> None:
    outbox.delete_before(0, 35)
    reissue = ["savepoint", "restore", "monday", "--policy", "reissue", "--yes"]
    refused = run(*reissue, code=5)
    assert f"{outbox.topic}/0: offsets 31 to 34 (4)" in refused
    assert "spark-job savepoint restore monday --policy reissue --accept-data-loss" in refused
    assert "spark-job run" not in refused
    assert outbox.generations() == [(1, "first", "skip", 0)]
    found = run_json(*reissue, "--accept-data-loss")
    assert found["foreseen"]["offsets_lost"] == 4
    assert found["resumes_at"] == outbox.offsets(40, 20)
    # A skip needs none of that.
    assert run_json("savepoint", "restore", "--yes")["resumes_at"] == outbox.offsets(90, 20)


def test_a_savepoint_of_other_session_settings_needs_a_word(
    outbox: JobOutbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTBOX_SESSION__TIMEOUT_S", "90")
    reissue = ["savepoint", "restore", "monday", "--policy", "reissue", "--yes"]
    refused = run(*reissue, code=5)
    assert "timeout_s: 60 -> 90.0" in refused
    assert "spark-job savepoint restore monday --policy reissue --accept-changed-assembly" in refused
    assert outbox.generations() == [(1, "first", "skip", 0)]
    run(*reissue, "--accept-changed-assembly")
    assert outbox.generations()[-1] == (2, "savepoint", "reissue", 1)
    row = outbox.connection.execute(
        "SELECT assembly->>'timeout_s', lineage->0->'assembly'->>'timeout_s' FROM outbox.generation ORDER BY generation DESC"
    ).fetchone()
    assert row == ("90.0", "60")


def test_an_unknown_savepoint_and_a_reissue_without_one_are_refused(outbox: JobOutbox) -> None:
    assert "Did you mean 'monday'" in run(
        "savepoint", "restore", "mondy", "--policy", "reissue", "--yes", code=2
    )
    assert "a reissue needs a savepoint" in run(
        "savepoint", "restore", "--policy", "reissue", "--yes", code=2
    )
    # To go back sends again: nobody gets that, or the contrary of it, by leaving the policy out.
    assert "use --policy reissue" in run("savepoint", "restore", "monday", "--yes", code=2)
    assert outbox.generations() == [(1, "first", "skip", 0)]


# Export and fork


@pytest.fixture
def exported(outbox: JobOutbox, tmp_path: Path) -> Path:
    """The savepoint as a file."""
    file = tmp_path / "monday.json"
    run("savepoint", "export", "monday", "--output", str(file))
    return file


@pytest.fixture
def another(
    outbox: JobOutbox, postgres: PostgresServer, template_database: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Connection]:
    """The settings name another outbox, which is empty."""
    name = f"test_{uuid.uuid4().hex}"
    dsn = postgres.create_database(name, template=template_database)
    monkeypatch.setenv("OUTBOX_POSTGRES__DSN", f"{dsn}?options=-c%20role%3Doutbox_writer")
    with psycopg.connect(dsn, autocommit=True, options=ROLE) as connection:
        yield connection
    postgres.drop_database(name)


def generation_of(connection: Connection) -> Generation:
    found = newest_generation(connection)
    assert found is not None
    return found


def test_an_export_is_what_another_outbox_needs_and_says_so_where_it_was_spoiled(exported: Path) -> None:
    printed = json.loads(run("savepoint", "export", "monday"))
    assert printed == json.loads(exported.read_text())
    assert "no savepoint 'mondy'" in run("savepoint", "export", "mondy", code=2)
    whole = exported.read_text()
    for spoiled, why in (
        (whole.replace('"0": 40', '"0": 41'), "is not as it was written"),
        (whole[:-20], "cannot be read"),
        (whole.replace("savepoint 3", "savepoint 4"), "of this version"),
        ("[]", "of this version"),
    ):
        exported.write_text(spoiled)
        assert why in run("fork", str(exported), code=2)


@pytest.mark.guarantee(91)
def test_a_fork_begins_an_empty_outbox_at_the_savepoint(
    outbox: JobOutbox, exported: Path, another: Connection
) -> None:
    saved = savepoints.get(outbox.connection, "monday")
    found = run_json("fork", str(exported))
    assert (found["generation"], found["reason"], found["revision"]) == (1, "fork", 0)
    assert (found["resumes_at"], found["open_sessions"]) == (outbox.offsets(40, 20), 1)
    made = generation_of(another)
    assert (made.start, made.open, made.topics) == (saved.end, saved.open, saved.topics)
    assert (made.policy, made.savepoint, made.from_generation) == ("skip", None, None)
    assert ownership.read_owner(another).run_id is None
    assert "is not empty" in run("fork", str(exported), code=2)
    assert outbox.generations() == [(1, "first", "skip", 0)]


@pytest.mark.guarantee(91)
def test_a_fork_whose_offsets_expired_needs_a_word(
    outbox: JobOutbox, exported: Path, another: Connection
) -> None:
    outbox.delete_before(0, 50)
    refused = run("fork", str(exported), code=5)
    assert f"{outbox.topic}/0: offsets 31 to 49 (19)" in refused
    assert f"spark-job fork {exported} --accept-data-loss" in refused
    assert newest_generation(another) is None
    found = run_json("fork", str(exported), "--accept-data-loss")
    assert (found["resumes_at"], found["open_sessions"]) == (outbox.offsets(50, 20), 0)


@pytest.mark.guarantee(91)
def test_a_fork_with_other_session_settings_needs_a_word(
    exported: Path, another: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTBOX_SESSION__TIMEOUT_S", "90")
    assert f"spark-job fork {exported} --accept-changed-assembly" in run("fork", str(exported), code=5)
    assert newest_generation(another) is None
    run("fork", str(exported), "--accept-changed-assembly")
    made = generation_of(another)
    assert made.assembly["timeout_s"] == 90
    assert [former.assembly["timeout_s"] for former in made.lineage.former] == [60]


@pytest.mark.guarantee(91)
def test_a_fork_of_other_topics_is_refused(
    outbox: JobOutbox,
    exported: Path,
    another: Connection,
    kafka: KafkaServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = f"{outbox.topic}-other"
    create_topics(kafka.bootstrap_servers, {other: (2, {})})
    monkeypatch.setenv("OUTBOX_SOURCE__TOPICS", json.dumps([other]))
    assert f"lacks {outbox.topic}" in run("fork", str(exported), code=2)
    # A topic of the same name with another id: it was created again, or this is another cluster.
    content = exported.read_text().replace(outbox.topic_id, TOPIC_ID)
    fields = {name: value for name, value in json.loads(content).items() if name != "checksum"}
    exported.write_text(json.dumps(fields | {"checksum": exported_savepoints.checksum_of(fields)}))
    monkeypatch.setenv("OUTBOX_SOURCE__TOPICS", json.dumps([outbox.topic]))
    assert f"topic {outbox.topic} has another id here" in run("fork", str(exported), code=2)
    assert newest_generation(another) is None


def test_a_fork_waits_for_no_living_job(exported: Path, another: Connection) -> None:
    with another.transaction():
        ownership.take_over(another, uuid.uuid4(), load_settings(None).job, force=False)
    assert "owns this outbox" in run("fork", str(exported), code=4)
    assert newest_generation(another) is None


# The operator log


def logged(connection: Connection) -> list[tuple[Any, ...]]:
    """(command, arguments, result) of each row, oldest first, with the owner's rights; forgets them."""
    connection.execute("SET ROLE NONE")
    rows = connection.execute(
        "SELECT command, arguments, result FROM outbox.operation ORDER BY operation_id"
    ).fetchall()
    connection.execute("DELETE FROM outbox.operation")
    return rows


def test_each_command_leaves_its_row_in_the_operator_log(
    outbox: JobOutbox, exported: Path, another: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("fork", str(exported))
    ((command, arguments, result),) = logged(another)
    assert (command, arguments) == ("spark-job fork", {"file": str(exported), "savepoint": "monday"})
    assert result["generation"] == 1

    monkeypatch.setenv("OUTBOX_POSTGRES__DSN", f"{outbox.dsn}?options=-c%20role%3Doutbox_writer")
    logged(outbox.connection)
    run("savepoint", "create", "tuesday")
    run("stop", "--savepoint", "wednesday")
    run("savepoint", "delete", "tuesday")
    run("savepoint", "delete", "tuesday", code=2)
    run("savepoint", "restore", "monday", "--policy", "reissue", "--dry-run")
    run("savepoint", "restore", "monday", "--policy", "reissue", "--accept-data-loss", "--yes")
    rows = logged(outbox.connection)
    place = {"place": "generation 1, batch 3"}
    assert rows[:3] == [
        ("spark-job savepoint create", {"name": "tuesday"}, place),
        ("spark-job stop", {"savepoint": "wednesday"}, place),
        ("spark-job savepoint delete", {"name": "tuesday"}, {}),
    ]
    ((command, arguments, result),) = rows[3:]
    assert (command, result["generation"]) == ("spark-job savepoint restore", 2)
    assert arguments == {"savepoint": "monday", "policy": "reissue", "data_loss": True}


def test_a_command_whose_row_cannot_be_written_changes_nothing(outbox: JobOutbox) -> None:
    outbox.connection.execute("SET ROLE NONE")
    outbox.connection.execute(
        "ALTER TABLE outbox.operation ADD CONSTRAINT operation_refused CHECK (false) NOT VALID"
    )
    for line in (
        ["savepoint", "create", "tuesday"],
        ["savepoint", "delete", "monday"],
        ["savepoint", "restore", "--yes"],
    ):
        assert "operation_refused" in str(CliRunner().invoke(app, line).exception), line
    assert outbox.generations() == [(1, "first", "skip", 0)]
    assert [each["name"] for each in run_json("savepoint", "list")] == ["monday"]


# Who is in the way


def test_a_run_that_hangs_is_fenced_by_a_restore(outbox: JobOutbox) -> None:
    """It must not write behind the new generation when it wakes."""
    with psycopg.connect(outbox.dsn, autocommit=True, options=ROLE) as hanging:
        with hanging.transaction():
            ownership.take_over(hanging, outbox.sink_run.run_id, load_settings(None).job, force=False)
        hanging.execute("UPDATE outbox.writer SET heartbeat_at = clock_timestamp() - interval '1 hour'")
        run("savepoint", "restore", "--yes")
        with pytest.raises(MovedError, match="no later one does"), hanging.transaction():
            ownership.lock_and_check(hanging, outbox.sink_run.run_id)
    assert ownership.read_owner(outbox.connection).run_id is None


def test_a_restore_killed_while_it_opens_the_generation_leaves_nothing_and_can_be_given_again(
    outbox: JobOutbox,
) -> None:
    command = [sys.executable, "-m", "spark_job", "savepoint", "restore", "--yes"]
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
    run("savepoint", "restore", "--yes")
    assert outbox.generations() == [(1, "first", "skip", 0), (2, "skip", "skip", 0)]
