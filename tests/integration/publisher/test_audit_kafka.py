"""`publisher audit --kafka` finds what is lost, duplicated, altered, unexpected or out of order in the topics, and names it."""

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from db.errors import UnavailableError
from db.settings import KafkaSettings, Settings
from devstack.databases import PostgresServer
from devstack.kafka import KafkaServer
from devstack.topics import create_topics
from publisher.audit.findings import Report
from publisher.audit.scope import Limits
from publisher.audit.topics import Broker, Offsets, Topic
from publisher.clients import lane_producer
from tests.integration.publisher.audits import (
    TWICE,
    copy_of,
    damage,
    deliver,
    delivered_outbox,
    examples,
    failed,
    fill,
    row,
    run_audit,
    send,
)
from tests.integration.publisher.harness import InThread, drained, query, settings_for, wait_until
from tests.integration.publisher.outbox_rows import TOPIC_ID, Outbox, Session, simple
from tests.integration.publisher.restoring import Dump, resume

NEVER_SENT = (
    f"{TWICE}, session_ends = session_ends || ARRAY[7::bigint], session_outputs = session_outputs || ARRAY[1],"
    """ topics = topics || topics[1], "values" = "values" || 'never sent'::bytea"""
)
"""What a change needs that gives a row of one session one more, whose output counts as delivered."""

FOREIGN = "BBBBBBBBBBBBBBBBBBBBBB"


@pytest.fixture(scope="module")
def delivered(
    postgres: PostgresServer, template_database: str, kafka: KafkaServer
) -> Iterator[tuple[Settings, Outbox]]:
    """Four batches of five keys that were delivered, by two lanes. Its topic is not to be changed."""
    with delivered_outbox(postgres, template_database, kafka.bootstrap_servers) as found:
        yield found


def publisher_command(settings: Settings, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run `publisher` as people do."""
    return subprocess.run(
        [sys.executable, "-m", "publisher", *arguments],
        env=environment_for(settings),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def environment_for(settings: Settings) -> dict[str, str]:
    """The environment of a process with these settings."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OUTBOX_")}
    environment["OUTBOX_POSTGRES__DSN"] = settings.postgres.dsn.get_secret_value()
    environment["OUTBOX_KAFKA__BOOTSTRAP_SERVERS"] = settings.kafka.bootstrap_servers
    return environment


def counted(report: Report, name: str) -> int:
    """One of the numbers of a report."""
    return report.counted.get(name, 0)


def abort(settings: Settings, topic: str) -> None:
    """Leave aborted records that look like outputs."""
    producer = lane_producer(settings.kafka, f"test-{uuid4()}", 60_000, None)
    producer.init_transactions(60)
    producer.begin_transaction()
    for n in range(20):
        producer.produce(
            topic, b"aborted", b"k0001", headers=[("outbox-id", f"{TOPIC_ID}/0/100199/{n}".encode())]
        )
    producer.flush(60)
    producer.abort_transaction(60)


def test_a_clean_outbox_is_clean_with_everything_an_output_can_have_and_while_publishing_goes_on(
    outbox: Outbox, settings: Settings, tmp_path: Path
) -> None:
    later = outbox.topic
    outbox.batch(
        {
            "tombstone": [Session([None, b"x", None], 10)],
            "several": [Session([b"1", b"2"], 11), Session([], 12), Session([b"3"], 13)],
            "own": [
                Session(
                    [b"a", b"b", b"c"],
                    14,
                    keys=[b"other", None, b""],
                    headers=[
                        [["trace", "id"], ["raw", {"base64": "/w=="}], ["empty", None]],
                        None,
                        [["a", ""], ["a", "2"]],
                    ],
                    partitions=[2, None, 0],
                    timestamps_ms=[None, 1_700_000_000_000, None],
                )
            ],
            "schlüssel 鍵": [Session(["ü".encode()], 15)],
            "refused": [Session([b"bad"], 16, partitions=[99])],
            "nothing": [Session([], 17)],
        }
    )
    abort(settings, later)
    fill(outbox)
    outbox.batch(simple(1, 3), revision=1)
    deliver(settings)
    abort(settings, later)
    lane = outbox.lane_of("refused")
    damage(
        settings,
        f"SELECT outbox.requeue(ARRAY['refused'], ARRAY[1::bigint], ARRAY[{lane}], 2, gen_random_uuid())",
    )
    damage(settings, "UPDATE outbox.session_output SET partitions = NULL WHERE session_key = 'refused'")
    stop = threading.Event()

    def write_on() -> None:
        batch = 100
        while not stop.is_set():
            outbox.batch(simple(batch, 5))
            batch += 1

    writer = threading.Thread(target=write_on)
    with InThread(settings):
        writer.start()
        try:
            for _ in range(2):
                report = run_audit(settings, tmp_path, kafka=True)
                assert failed(report) == {}
                assert counted(report, "outputs_found") >= 70
        finally:
            stop.set()
            writer.join()
        wait_until(lambda: drained(outbox.dsn), "everything delivered")
    report = run_audit(settings, tmp_path, kafka=True)
    assert failed(report) == {}
    assert counted(report, "outputs_found") == counted(report, "records") == len(outbox.written)
    assert report.mend == []
    # The row that was put aside went out with batch 7.
    report = run_audit(settings, tmp_path, kafka=True, limits=Limits(to_batch=6))
    assert failed(report) == {}


def test_what_is_committed_and_delivered_while_an_audit_begins_is_explained(
    outbox: Outbox, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(outbox)
    ends = Broker.ends

    def deliver_more_first(broker: Broker, topics: list[Topic]) -> Offsets:
        outbox.batch(simple(9, 5))
        wait_until(lambda: drained(outbox.dsn), "what was committed after the scope was frozen")
        return ends(broker, topics)

    with InThread(settings):
        wait_until(lambda: drained(outbox.dsn), "everything delivered")
        monkeypatch.setattr(Broker, "ends", deliver_more_first)
        report = run_audit(settings, tmp_path, kafka=True)
    assert failed(report) == {}
    assert counted(report, "outputs_found") == 75


def test_a_row_that_counts_as_delivered_and_never_was_is_lost_and_the_replay_that_mends_it_is_named(
    delivered: tuple[Settings, Outbox], postgres: PostgresServer, tmp_path: Path
) -> None:
    with copy_of(postgres, delivered[0]) as settings:
        damage(settings, row(NEVER_SENT, 2, "k0003"))
        report = run_audit(settings, tmp_path, kafka=True)
        assert failed(report) == {"batch_counts": 1, "delivery_counts": 1, "lost": 1}
        assert f"{TOPIC_ID}/0/7/0 (batch 2, session 'k0003'" in examples(report, "lost")
        assert report.mend == ["publisher replay start --from-batch 2 --to-batch 2 --key=k0003 --yes"]


def test_an_altered_output_is_found_and_the_field_is_named(
    delivered: tuple[Settings, Outbox], postgres: PostgresServer, tmp_path: Path
) -> None:
    with copy_of(postgres, delivered[0]) as settings:
        damage(
            settings,
            row(""""values"[2] = '{"batch":1,"key":0,"event":8}'""", 1, "k0000"),
            row("keys = ARRAY[NULL, 'k'::bytea, NULL]", 1, "k0001"),
            row("""headers = ARRAY[NULL, NULL, '[["a", "b"]]'::jsonb]""", 1, "k0002"),
            row("topics[1] = 'test-other'", 1, "k0003"),
            row("partitions = ARRAY[5, NULL, NULL]", 1, "k0004"),
            row("timestamps_ms = ARRAY[5, NULL, NULL]", 2, "k0000"),
        )
        report = run_audit(settings, tmp_path, kafka=True)
        assert failed(report) == {"altered": 6}
        words = examples(report, "altered")
        for place, field in [
            ("100099/1 (batch 1, session 'k0000'", "value differ"),
            ("100199/1 (batch 1, session 'k0001'", "key differ"),
            ("100299/2 (batch 1, session 'k0002'", "headers differ"),
            ("100399/0 (batch 1, session 'k0003'", "topic differ"),
            ("100499/0 (batch 1, session 'k0004'", "partition differ"),
            ("200099/0 (batch 2, session 'k0000'", "timestamp differ"),
        ]:
            line = next(line for line in words.splitlines() if place in line)
            assert f": {field} at " in line


def test_outputs_of_a_key_that_lie_in_another_order_than_in_the_outbox_are_found(
    delivered: tuple[Settings, Outbox], postgres: PostgresServer, tmp_path: Path
) -> None:
    with copy_of(postgres, delivered[0]) as settings:
        damage(
            settings,
            row("batch_id = 12", 2, "k0001"),
            row("batch_id = 2", 3, "k0001"),
            row("batch_id = 3", 12, "k0001"),
        )
        report = run_audit(settings, tmp_path, kafka=True)
        assert failed(report) == {"order": 1}
        assert f"{TOPIC_ID}/0/300199/2 before {TOPIC_ID}/0/200199/0 in the outbox" in examples(
            report, "order"
        )


def test_a_record_whose_row_was_put_aside_is_unexpected(
    delivered: tuple[Settings, Outbox], postgres: PostgresServer, tmp_path: Path
) -> None:
    with copy_of(postgres, delivered[0]) as settings:
        lane = delivered[1].lane_of("k0002")
        damage(settings, f"INSERT INTO outbox.parked SELECT 'k0002', 3, 1, {lane}, 1, 'invalid', 'x'")
        report = run_audit(settings, tmp_path, kafka=True)
        assert failed(report) == {"delivery_counts": 1, "unexpected": 3}
        assert "though its row was put aside" in examples(report, "unexpected")


def test_a_part_of_the_outbox_is_audited_alone(
    delivered: tuple[Settings, Outbox], postgres: PostgresServer, tmp_path: Path
) -> None:
    with copy_of(postgres, delivered[0]) as settings:
        for limits in (Limits(from_batch=3), Limits(to_batch=2), Limits(2, 3)):
            report = run_audit(settings, tmp_path, kafka=True, limits=limits)
            assert failed(report) == {}
            assert counted(report, "outputs_found") == 30


def test_copies_strangers_and_unknown_outputs_in_the_topic_are_told_apart(
    outbox: Outbox, settings: Settings, tmp_path: Path
) -> None:
    fill(outbox)
    deliver(settings)
    value = b'{"batch":1,"key":0,"event":0}'
    own = ("outbox-id", f"{TOPIC_ID}/0/100099/0".encode())
    send(settings, outbox.topic, (b"k0000", value, [own, ("outbox-replay", b"1")], 0))
    send(
        settings,
        outbox.topic,
        (b"x", b"y", [], 0),
        (b"x", b"y", [("outbox-id", f"{FOREIGN}/0/1/0".encode())], 0),
    )
    report = run_audit(settings, tmp_path, kafka=True)
    assert failed(report) == {}
    numbers = ("replayed_records", "foreign_records", "records_of_other_outboxes")
    assert [counted(report, name) for name in numbers] == [1, 1, 1]
    send(settings, outbox.topic, (b"k0000", value, [own], 0))
    send(settings, outbox.topic, (b"k0001", b"other", [("outbox-id", f"{TOPIC_ID}/0/100199/1".encode())], 1))
    send(settings, outbox.topic, (b"k", b"", [("outbox-id", f"{TOPIC_ID}/0/999/0".encode())], 1))
    send(settings, outbox.topic, (b"k0000", value, [own, ("outbox-revision", b"3")], 1))
    report = run_audit(settings, tmp_path, kafka=True)
    assert failed(report) == {"duplicated": 2, "altered": 1, "unexpected": 2}
    assert "/0/100099/0 (batch 1, session 'k0000'" in examples(report, "duplicated")
    assert examples(report, "duplicated").count("@") == 4
    assert "/0/100199/1 (batch 1, session 'k0001'" in examples(report, "altered")
    assert f"{TOPIC_ID}/0/999/0 at " in examples(report, "unexpected")
    assert f"{TOPIC_ID}/0/100099/0 revision 3 at " in examples(report, "unexpected")


def test_what_a_topic_deleted_by_its_retention_is_expired_and_what_a_deleted_topic_held_is_lost(
    outbox: Outbox, kafka: KafkaServer, tmp_path: Path
) -> None:
    settings = settings_for(outbox.dsn, kafka.bootstrap_servers, transaction_sessions=2)
    fill(outbox)
    deliver(settings)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    ends = query(
        outbox.dsn,
        "SELECT p.key::int, max((p.value ->> 1)::int) FROM outbox.delivery d, jsonb_each(d.kafka_offsets) t, jsonb_each(t.value) p"
        " WHERE d.to_batch < 4 GROUP BY p.key",
    )
    asked = admin.delete_records([TopicPartition(outbox.topic, place, end + 1) for place, end in ends])
    for future in asked.values():
        future.result(60)
    report = run_audit(settings, tmp_path, kafka=True)
    assert failed(report) == {}
    found, expired = counted(report, "outputs_found"), counted(report, "expired_outputs")
    undecided = next(check.count for check in report.checks if check.name == "not_decidable")
    assert found + expired + undecided == 60
    assert expired >= 30
    for deleted in admin.delete_topics([outbox.topic], operation_timeout=60).values():
        deleted.result(60)

    def made_anew() -> bool:
        try:
            create_topics(kafka.bootstrap_servers, {outbox.topic: (3, {})})
        except Exception:  # noqa: BLE001 - while it is still being deleted
            return False
        described = admin.describe_topics(TopicCollection([outbox.topic]))
        return described[outbox.topic].result(60) is not None

    wait_until(made_anew, "the topic made anew")
    report = run_audit(settings, tmp_path, kafka=True)
    assert failed(report) == {"topics": 1, "lost": 60}
    assert "was deleted and made anew" in examples(report, "topics")
    assert report.mend == ["publisher replay start --from-batch 1 --to-batch 4 --yes"]


def test_the_printed_command_mends_a_loss_of_more_keys_than_it_names(
    outbox: Outbox, settings: Settings, tmp_path: Path
) -> None:
    outbox.batch(simple(1, 30))
    deliver(settings)
    never_sent = (
        f"{TWICE}, session_ends = session_ends || session_ends[1] + 1, session_outputs = session_outputs || 1,"
        """ topics = topics || topics[1], "values" = "values" || 'never sent'::bytea"""
    )
    damage(
        settings,
        f"UPDATE outbox.session_output SET {never_sent} WHERE session_key < 'k0012'",  # noqa: S608
        "UPDATE outbox.batch SET sessions = 42, output_events = 102, output_bytes = output_bytes + 120",
        *(
            f"UPDATE outbox.{table} t SET sessions = sessions + more, events = events + more FROM (SELECT lane, count(*) AS more"  # noqa: S608
            f" FROM outbox.session_output WHERE session_key < 'k0012' GROUP BY lane) m WHERE m.lane = t.lane AND t.events > 0"
            for table in ("lane", "delivery")
        ),
    )
    report = run_audit(settings, tmp_path, kafka=True)
    assert failed(report) == {"lost": 12}
    keys = tmp_path / "lost-keys.txt"
    assert report.mend == [
        f"publisher replay start --from-batch 1 --to-batch 1 --keys-file {shlex.quote(str(keys))} --yes"
    ]
    assert keys.read_text("utf-8").split() == [f"k{n:04d}" for n in range(12)]
    program, *arguments = shlex.split(report.mend[0])
    mended = publisher_command(settings, *arguments)
    assert (program, mended.returncode) == ("publisher", 0), mended.stderr
    report = run_audit(settings, tmp_path, kafka=True)
    assert failed(report) == {}
    assert (counted(report, "replayed_records"), counted(report, "outputs_only_replayed")) == (48, 12)


@pytest.mark.parametrize(("way", "again"), [(("kafka",), 0), (("beginning",), 15)])
def test_a_loss_of_before_a_restore_and_a_resume_is_found_and_what_the_resume_sent_again_is_none(
    outbox: Outbox,
    settings: Settings,
    postgres: PostgresServer,
    tmp_path: Path,
    way: tuple[str, ...],
    again: int,
) -> None:
    outbox.batch(simple(1, 5))
    deliver(settings)
    dump = Dump(postgres, outbox.dsn)
    outbox.batch(simple(2, 5))
    deliver(settings)
    dump.restore()
    dump.drop()
    outbox.batch(simple(2, 5))
    resume(settings, "--from", *way, "--yes")
    deliver(settings)
    damage(settings, row(NEVER_SENT, 1, "k0003"))
    report = run_audit(settings, tmp_path, kafka=True)
    found = failed(report)
    assert found["lost"] == 1
    assert f"{TOPIC_ID}/0/7/0 (batch 1, session 'k0003'" in examples(report, "lost")
    assert counted(report, "records_sent_again_by_resume") == again
    # Batch 2 alone: what the lost history had sent of it, the job wrote anew.
    assert found["duplicated"] == 15


def test_what_a_resume_skipped_is_noted_by_name_and_no_loss(
    outbox: Outbox, settings: Settings, tmp_path: Path
) -> None:
    outbox.batch(simple(1, 5))
    deliver(settings)
    outbox.batch(simple(2, 5))
    resume(settings, "--from", "batch", "3", "--yes")
    outbox.batch(simple(3, 5))
    deliver(settings)
    report = run_audit(settings, tmp_path, kafka=True)
    assert failed(report) == {}
    skipped = next(check for check in report.checks if check.name == "skipped_by_resume")
    assert skipped.count == 15
    assert "(batch 2, session 'k0000'" in examples(report, "skipped_by_resume")


def test_a_server_that_is_away_is_no_finding(delivered: tuple[Settings, Outbox], tmp_path: Path) -> None:
    settings, outbox = delivered
    kafka = KafkaSettings(bootstrap_servers="localhost:1", request_timeout_s=1)
    with pytest.raises(UnavailableError, match="Kafka at localhost:1 does not answer"):
        run_audit(settings.model_copy(update={"kafka": kafka}), tmp_path, kafka=True)
    nowhere = settings_for(f"{outbox.dsn}_gone", settings.kafka.bootstrap_servers)
    with pytest.raises(UnavailableError, match="cannot be used"):
        run_audit(nowhere, tmp_path)


def test_the_command_says_by_its_exit_code_and_its_reports_what_it_found(
    delivered: tuple[Settings, Outbox], postgres: PostgresServer, tmp_path: Path
) -> None:
    clean = publisher_command(delivered[0], "audit", "--kafka")
    assert clean.returncode == 0, clean.stderr
    assert clean.stdout.splitlines()[-1] == "clean"
    with copy_of(postgres, delivered[0]) as settings:
        damage(settings, "DELETE FROM outbox.batch WHERE batch_id = 3")
        file = tmp_path / "report.json"
        ended = publisher_command(settings, "audit", "--json", "--report", str(file))
        assert ended.returncode == 1, ended.stderr
        assert json.loads(ended.stdout) == json.loads(file.read_text("utf-8"))
        assert json.loads(ended.stdout)["checks"][0]["examples"] == ["batch 3 is missing"]


KILLED = """
import os, signal, sys
from publisher.audit import expected, found, state
found._SAVE_S = expected._SAVE_S = 0.0
found._FETCH_MESSAGES = 20
from publisher.audit import scope
scope._RANGE_SESSIONS = 10
saves, save, at = [0], state.save, int(sys.argv[1])
def killing(folder, now):
    saves[0] += 1
    last = saves[0] == at
    if last and saves[0] % 2:
        os.kill(os.getpid(), signal.SIGKILL)
    save(folder, now)
    if last:
        os.kill(os.getpid(), signal.SIGKILL)
state.save = killing
sys.argv = ["publisher", "audit", "--kafka", "--json", "--state", sys.argv[2]]
from publisher.cli import main
main()
"""


def test_an_audit_that_is_killed_again_and_again_goes_on_where_it_was_and_finds_the_same(
    delivered: tuple[Settings, Outbox], postgres: PostgresServer, tmp_path: Path
) -> None:
    with copy_of(postgres, delivered[0]) as settings:
        damage(settings, """UPDATE outbox.session_output SET "values"[1] = 'altered' WHERE batch_id = 4""")
        state = tmp_path / "state"
        codes = []
        for at in (2, 1, 5, 0):
            ended = subprocess.run(
                [sys.executable, "-c", KILLED, str(at), str(state)],
                env=environment_for(settings),
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            codes.append(ended.returncode)
        assert codes == [-signal.SIGKILL] * 3 + [1], ended.stderr
        report = json.loads(ended.stdout)
        assert report["counted"]["records"] == report["counted"]["outputs_found"] == 60
        wrong = {check["name"]: check["count"] for check in report["checks"] if check["result"] == "failed"}
        assert wrong == {"batch_counts": 1, "altered": 5}
        assert not list(state.iterdir())
