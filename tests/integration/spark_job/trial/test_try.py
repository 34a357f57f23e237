"""`spark-job try` and `diff` on a real input and a real outbox: what they find, what differs, and that they leave nothing behind."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer, TopicCollection
from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner, Result

from devstack.kafka import KafkaServer
from devstack.topics import create_topics
from service.errors import RefusedError, SettingsError
from service.kafka.topic_ids import topic_id_text
from service.settings import load_settings
from spark_job import OutputEvent
from spark_job.cli import app
from spark_job.input.offsets import TopicPartition
from spark_job.ledger.assembly_rules import stored_rules
from spark_job.outputs import transform
from spark_job.outputs.encoding import encode
from tests.support.outbox.closed_sessions import closed, fields
from tests.support.sink.batches import Row, SinkRun, letter, session, still_open

TRANSFORM = """
from spark_job import OutputEvent

def transform(session):
    for entry in session.of("entry_event"):
        yield OutputEvent("out", {"n": entry.value["n"]})
"""
SESSIONS = 6
EVENTS = 4


class Input:
    """Sessions k-0 to k-5 in partition 0, of four events each, then one that is open; and an outbox that has read five of them."""

    def __init__(self, dsn: str, kafka: KafkaServer, topic: str, connection: psycopg.Connection[Any]) -> None:
        self.dsn, self.topic = dsn, topic
        self.admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
        create_topics(kafka.bootstrap_servers, {topic: (2, {})})
        described_topic = self.admin.describe_topics(TopicCollection([topic]))[topic].result()
        self.topic_id = topic_id_text(described_topic.topic_id)
        self._bootstrap = kafka.bootstrap_servers
        self.send(
            *(
                (f"k-{number}", kind, number)
                for number in range(SESSIONS)
                for kind in ("start", "entry", "entry", "end")
            ),
            ("open", "start", 6),
        )
        self.sink = SinkRun(connection, topic=(topic, self.topic_id), assembly=stored_rules(load_settings()))

    def send(self, *events: tuple[str, str, int]) -> None:
        """Write (key, type, second)."""
        producer = Producer({"bootstrap.servers": self._bootstrap, "log_level": 0})
        for key, kind, second in events:
            value = {"session_key": key, "event_type": f"{kind}_event", "n": second}
            at_ms = 1_767_225_600_000 + 1_000 * second
            producer.produce(self.topic, json.dumps(value).encode(), partition=0, timestamp=at_ms)
        producer.flush()

    def stored(self, number: int, outputs: Sequence[OutputEvent], start: int | None = None) -> Row:
        """The row of a session with these outputs."""
        key, end = f"k-{number}", EVENTS * number + 3
        start = EVENTS * number if start is None else start
        row = session(key, start, end, outputs)
        return row | {
            "fields": fields(
                closed(key, start, end), TopicPartition(self.topic_id, 0), encode(outputs, 1 << 20)
            )
        }


def right(number: int) -> list[OutputEvent]:
    """What the transform makes of a session now."""
    return [OutputEvent("out", {"n": number})] * 2


@pytest.fixture
def stand(
    database: str,
    kafka: KafkaServer,
    topic_prefix: str,
    connection: psycopg.Connection[Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Input:
    name = f"transform_{topic_prefix.strip('-_.').replace('-', '_').replace('.', '_')}"
    (tmp_path / f"{name}.py").write_text(TRANSFORM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    topic = f"{topic_prefix}in"
    for variable, value in {
        "POSTGRES__DSN": f"{database}?options=-c%20role%3Doutbox_writer",
        "KAFKA__BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "SOURCE__TOPICS": json.dumps([topic]),
        "TRANSFORM__FUNCTION": f"{name}:transform",
    }.items():
        monkeypatch.setenv(f"OUTBOX_{variable}", value)
    transform.load.cache_clear()
    made = Input(database, kafka, topic, connection)
    made.sink.plan(0, (0, 0), (20, 0))
    made.sink.write(
        0,
        made.stored(0, right(0)),
        made.stored(
            1, [OutputEvent("out", {"n": 1}), OutputEvent("out", {"n": 9}), OutputEvent("gone", b"")]
        ),
        made.stored(2, right(2)[:1]),
        made.stored(3, right(3), start=10),
        letter("k-4", 16, 19, "transform_failed"),
    )
    return made


def tried(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["try", *arguments])


def differed(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["diff", *arguments])


def rows(dsn: str) -> list[Any]:
    """How many rows were ever changed, of each table."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        return connection.execute(
            "SELECT relname, n_tup_ins, n_tup_upd, n_tup_del FROM pg_stat_user_tables"
            " WHERE schemaname = 'outbox' ORDER BY relname"
        ).fetchall()


def test_each_of_the_newest_sessions_is_compared_with_its_row(stand: Input) -> None:
    done = tried("--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert [each["session_key"] for each in found["sessions"]] == [f"k-{n}" for n in range(SESSIONS)]
    assert [(each["start_offset"], each["end_offset"]) for each in found["sessions"]][1] == (4, 7)
    outbox = [each["outbox"] for each in found["sessions"]]
    assert [each["state"] for each in outbox] == [
        "same",
        "altered",
        "altered",
        "begins_earlier",
        "dead_letter",
        "not_read",
    ]
    assert [each.get("outputs") for each in outbox[:3]] == [
        ["same", "same"],
        ["same", "altered", "missing"],
        ["same", "new"],
    ]
    assert "transform_failed, open" in outbox[4]["because"]
    assert "up to offset 20 only" in outbox[5]["because"]
    assert found["records_read"] == SESSIONS * EVENTS + 1
    assert found["outbox"] == {"compared": True, "because": None}
    text = tried("--last", "5").stdout
    assert "k-0" not in text
    assert f"k-1  {stand.topic}/0 offsets 4 to 7, 4 events" in text
    assert "differs from batch 1: outputs 1 same, 1 altered, 1 missing" in text
    assert "  -gone  key k-1" in text.splitlines()
    summary = "sessions 5, altered 2, not compared, begun before the first record read 1, dead letters 1, not read by the job yet 1; read: "
    assert summary in text


def test_a_session_whose_silence_the_job_has_not_seen_is_none_that_the_outbox_lacks(
    stand: Input, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last event was read. The records that show the silence come later."""
    monkeypatch.setenv("OUTBOX_SESSION__ON_TIMEOUT", "emit")
    stand.sink.plan(1, (20, 0), (25, 0))
    stand.sink.write(1, stand.stored(5, right(5)), still_open(0, 24))
    stand.send(("later", "start", 200), ("even later", "start", 201))
    found = json.loads(tried("--last", "1", "--json").stdout)
    (session,) = found["sessions"]
    assert (session["session_key"], session["end_offset"]) == ("open", 24)
    assert (session["outbox"]["state"], session["outbox"]["because"]) == (
        "not_read",
        "the job has read this partition up to offset 25 only",
    )


def test_the_rest_of_a_session_is_not_taken_for_a_whole_one_where_any_event_opens_one(
    stand: Input, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The 32 records of the partition that are read at first are the end of a long session, and 30 short ones of another day."""
    for name, value in {"START": "", "ENTRY": "*", "END": "", "ON_TIMEOUT": "emit"}.items():
        monkeypatch.setenv(f"OUTBOX_SESSION__{name}", value)
    monkeypatch.setenv("OUTBOX_POSTGRES__DSN", "postgresql://127.0.0.1:1/none")
    stand.send(
        *(("long", "entry", 1_000 + n) for n in range(60)),
        *((f"short-{n}", "entry", 90_000 + 200 * n) for n in range(30)),
    )
    assert json.loads(tried("--last", "28", "--json").stdout)["records_read"] == 32
    found = json.loads(tried("--last", "29", "--json").stdout)
    events = {each["session_key"]: each["events"] for each in found["sessions"]}
    assert events == {"long": 60} | {f"short-{n}": 1 for n in range(28)}


def test_nothing_is_left_behind(stand: Input, tmp_path: Path) -> None:
    groups = {group.group_id for group in stand.admin.list_consumer_groups().result().valid}
    before, files = rows(stand.dsn), sorted(tmp_path.rglob("*"))
    assert tried().exit_code == 0
    assert rows(stand.dsn) == before
    assert {group.group_id for group in stand.admin.list_consumer_groups().result().valid} == groups
    assert sorted(tmp_path.rglob("*")) == files


def test_without_postgres_the_outputs_are_shown_and_why_nothing_is_compared(
    stand: Input, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTBOX_POSTGRES__DSN", "postgresql://127.0.0.1:1/none")
    done = tried("--last", "1")
    assert done.exit_code == 0, done.output
    assert 'out  key k-5  {"n":5}' in done.stdout
    assert "Not compared with the outbox: Postgres at 127.0.0.1:1" in done.stdout


def test_a_limit_that_was_reached_is_named(stand: Input) -> None:
    done = tried("--max-bytes", "100")
    assert done.exit_code == 0
    assert "No older record was read: --max-bytes 100 was reached" in done.stdout


def test_a_topic_that_is_not_there_is_named(stand: Input, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTBOX_SOURCE__TOPICS", json.dumps([f"{stand.topic}-missing"]))
    assert isinstance(tried().exception, SettingsError)


def test_a_reissue_since_a_batch_is_foretold(stand: Input) -> None:
    before = rows(stand.dsn)
    done = differed("--since", "1", "--json")
    assert done.exit_code == 1, done.output
    found = json.loads(done.stdout)
    # The one that the job has not read yet is none of them.
    assert found["states"] == {"same": 1, "altered": 2, "begins_earlier": 1, "dead_letter": 1}
    assert found["outputs"] == {"changed": 1, "added": 3, "vanished": 1, "same": 4}
    assert [each["session_key"] for each in found["differing"]] == ["k-1", "k-2", "k-4"]
    text = differed("--since", "1h").stdout
    assert "  -gone  key k-1" in text.splitlines()
    assert text.splitlines()[-1] == "outputs: 1 changed, 3 added, 1 vanished, 4 same"
    assert rows(stand.dsn) == before
    assert isinstance(differed("--since", "2").exception, RefusedError)


def test_a_session_that_was_open_when_the_batch_began_is_compared_whole(stand: Input) -> None:
    """Its events lie before the batch; what closed before is left out."""
    stand.sink.plan(1, (20, 0), (22, 0))
    stand.sink.write(1, still_open(0, 20))
    stand.sink.plan(2, (22, 0), (25, 0))
    stand.sink.write(2, stand.stored(5, right(5)), still_open(0, 24))
    done = differed("--since", "3", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["states"], found["outputs"]["same"]) == ({"same": 1}, 2)
    found = json.loads(differed("--since", "1", "--last", "1", "--json").stdout)
    assert (found["sessions"], found["limited_by"]) == (1, "--last 1")
