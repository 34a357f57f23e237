"""`publisher audit --kafka` finds what the topics lack, and prints the replay that mends it."""

import shlex
from pathlib import Path

import pytest
from confluent_kafka import TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from devstack.databases import PostgresServer
from devstack.kafka import KafkaServer
from devstack.topics import create_topics
from service.settings import Settings
from tests.support.outbox.audits import (
    NEVER_SENT,
    TWICE,
    copy_of,
    counted,
    damage,
    examples,
    failed,
    fill,
    publisher_command,
    row,
    run_audit,
)
from tests.support.outbox.batches import TOPIC_ID, Outbox, simple
from tests.support.outbox.deliveries import deliver
from tests.support.outbox.restoring import resume
from tests.support.processes.publishers import settings_for
from tests.support.queries import query
from tests.support.waiting import wait_until


@pytest.mark.guarantee(127, 163)
def test_a_row_that_counts_as_delivered_and_never_was_is_lost_and_the_replay_that_mends_it_is_named(
    delivered: tuple[Settings, Outbox], postgres: PostgresServer, tmp_path: Path
) -> None:
    with copy_of(postgres, delivered[0]) as settings:
        damage(settings, row(NEVER_SENT, 2, "k0003"))
        report = run_audit(settings, tmp_path, kafka=True)
        assert failed(report) == {"batch_counts": 1, "delivery_counts": 1, "lost": 1}
        assert f"{TOPIC_ID}/0/7/0 (batch 2, session 'k0003'" in examples(report, "lost")
        assert report.mend == ["publisher replay start --from-batch 2 --to-batch 2 --key=k0003 --yes"]


def test_what_a_topic_deleted_by_its_retention_is_expired_and_what_a_deleted_topic_held_is_lost_until_mended(
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
    assert "was deleted and created again" in examples(report, "topics")
    assert report.mend == ["publisher replay start --from-batch 1 --to-batch 4 --yes"]
    mended = publisher_command(settings, *shlex.split(report.mend[0])[1:])
    assert mended.returncode == 0, mended.stderr
    report = run_audit(settings, tmp_path, kafka=True)
    assert failed(report) == {"topics": 1}
    assert (counted(report, "outputs_found"), counted(report, "outputs_only_replayed")) == (60, 60)
    resume(settings, "--from", "kafka", "--accept-new-topic", outbox.topic, "--yes")
    assert failed(run_audit(settings, tmp_path, kafka=True)) == {}


@pytest.mark.guarantee(127)
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
