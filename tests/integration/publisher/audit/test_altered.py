"""`publisher audit --kafka` finds outputs that lie in the topics otherwise than in the outbox: another field, another order."""

from pathlib import Path

import pytest

from devstack.databases import PostgresServer
from service.settings import Settings
from tests.support.outbox.audits import copy_of, damage, examples, failed, row, run_audit
from tests.support.outbox.batches import TOPIC_ID, Outbox


@pytest.mark.guarantee(127)
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


@pytest.mark.guarantee(127)
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
        assert f"{TOPIC_ID}/0/300199/2 and {TOPIC_ID}/0/200199/0 are in this order in the outbox" in examples(
            report, "order"
        )
