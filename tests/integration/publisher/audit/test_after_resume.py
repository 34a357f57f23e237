"""`publisher audit --kafka` tells what a resume sent again or skipped from what was lost."""

from pathlib import Path

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from devstack.databases import PostgresServer
from service.settings import Settings
from tests.support.outbox.audits import NEVER_SENT, counted, damage, examples, failed, row, run_audit, send
from tests.support.outbox.batches import TOPIC_ID, Outbox, Session, simple
from tests.support.outbox.deliveries import deliver
from tests.support.outbox.restoring import Dump, resume


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


@pytest.mark.guarantee(167)
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


def test_a_resume_excuses_one_copy_more_and_no_third_one(
    outbox: Outbox, settings: Settings, tmp_path: Path
) -> None:
    outbox.batch(simple(1, 5))
    deliver(settings)
    resume(settings, "--from", "beginning", "--yes")
    deliver(settings)
    assert failed(run_audit(settings, tmp_path, kafka=True)) == {}
    outbox_id = f"{TOPIC_ID}/0/100099/0".encode()
    send(settings, outbox.topic, (b"k0000", outbox.written[0][1], [("outbox-id", outbox_id)], 0))
    report = run_audit(settings, tmp_path, kafka=True)
    assert failed(report) == {"duplicated": 1}
    assert counted(report, "records_sent_again_by_resume") == 15


def test_what_was_delivered_before_a_resume_led_back_to_it_and_it_was_parked_is_expected(
    outbox: Outbox, settings: Settings, tmp_path: Path
) -> None:
    outbox.batch({"small": [Session([b"1"], 10)], "big": [Session([b"x" * 5_000, b"2"], 20)]})
    deliver(settings)
    admin = AdminClient({"bootstrap.servers": settings.kafka.bootstrap_servers})
    least = ConfigEntry("max.message.bytes", "2000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, outbox.topic, incremental_configs=[least])
    admin.incremental_alter_configs([resource])[resource].result(60)
    resume(settings, "--from", "beginning", "--yes")
    deliver(settings)
    # The clock was set back before the row was parked.
    damage(settings, "UPDATE outbox.parked SET created_at = created_at - interval '1 day'")
    report = run_audit(settings, tmp_path, kafka=True)
    assert failed(report) == {}
    assert next(check.count for check in report.checks if check.name == "parked") == 1
    assert counted(report, "records_sent_before_parking") == 2
