"""`publisher audit --kafka` finds what is in the topics once too often, or should not be there at all."""

from pathlib import Path

import pytest

from devstack.databases import PostgresServer
from service.settings import Settings
from tests.support.outbox.audits import copy_of, counted, damage, examples, failed, fill, run_audit, send
from tests.support.outbox.batches import TOPIC_ID, Outbox
from tests.support.outbox.deliveries import deliver

FOREIGN = "BBBBBBBBBBBBBBBBBBBBBB"


def test_a_record_whose_row_was_parked_is_unexpected(
    delivered: tuple[Settings, Outbox], postgres: PostgresServer, tmp_path: Path
) -> None:
    with copy_of(postgres, delivered[0]) as settings:
        lane = delivered[1].lane_of("k0002")
        parked = f"'k0002', 3, 1, {lane}, 1, 'invalid', 'x', 'parked', NULL, now(), '2026-01-01'"
        damage(settings, f"INSERT INTO outbox.parked SELECT {parked}")
        report = run_audit(settings, tmp_path, kafka=True)
        assert failed(report) == {"delivery_counts": 1, "unexpected": 3}
        assert "though its row was parked" in examples(report, "unexpected")


@pytest.mark.guarantee(127)
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
