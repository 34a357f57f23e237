"""`publisher audit` says that all is well when it is, and names what is not: from SQL alone."""

from pathlib import Path

import psycopg
import pytest

from devstack.databases import PostgresServer
from publisher.audit import scope
from publisher.audit.parked import check_parked
from publisher.audit.scope import Limits
from service.settings import Settings
from tests.support.outbox.audits import (
    TWICE,
    copy_of,
    damage,
    examples,
    failed,
    row,
    run_audit,
)
from tests.support.outbox.batches import Outbox, read_offsets, simple

GONE = "DELETE FROM outbox.session_output WHERE batch_id = 2 AND session_key = 'k0003'"


@pytest.mark.guarantee(128)
@pytest.mark.parametrize(
    ("sql", "checks", "words"),
    [
        ("DELETE FROM outbox.batch WHERE batch_id = 3", {"ledger_dense", "rows_in_ledger", "stream_continuity"}, "batch 3 is missing"),
        ("DELETE FROM outbox.batch WHERE batch_id <= 2", {"ledger_dense", "rows_in_ledger"}, "batches 1 to 2 are missing"),
        ("UPDATE outbox.batch SET part = 1 WHERE batch_id = 4", {"stream_continuity"}, "batch 4 (Spark batch 3, part 1)"),
        (
            """UPDATE outbox.batch SET start_offsets = '{"AAAAAAAAAAAAAAAAAAAAAA": {"0": 7}}' WHERE batch_id = 2""",
            {"stream_continuity"},
            "batch 2 (Spark batch 1, part 0) does not continue batch 1",
        ),
        (
            GONE,
            {"batch_counts", "delivery_counts"},
            "batch 2: the ledger says 5 sessions, its rows hold 4; 15 output events",
        ),
        (
            row(""""values"[1] = 'longer than it was'""", 2, "k0003"),
            {"batch_counts"},
            "output bytes, its rows hold",
        ),
        (row("lane = 7", 2, "k0003"), {"lanes", "delivery_counts"}, "'k0003': lane 7, but epoch 1 has 2 lanes"),
        (
            row("session_ends = ARRAY[100099]", 3, "k0000"),
            {"emitted_once"},
            "session 'k0000' ending at AAAAAAAAAAAAAAAAAAAAAA/0/100099: in batch 1 and again in batch 3",
        ),
        (
            row(f"{TWICE}, session_ends = session_ends || session_ends, session_outputs = session_outputs || 0", 3, "k0000"),
            {"emitted_once", "batch_counts", "delivery_counts"},
            "session 'k0000' ending at AAAAAAAAAAAAAAAAAAAAAA/0/300099: more than once in batch 3",
        ),
        ("DELETE FROM outbox.delivery WHERE lane = 1 AND seq = 2", {"delivery_chain", "mirror"}, "lane 1: after delivery 1 comes 3"),
        ("DELETE FROM outbox.delivery WHERE lane = 1 AND seq = 1", {"delivery_chain"}, "lane 1: after delivery 0 comes 2"),
        (
            "DELETE FROM outbox.delivery d WHERE lane = 1 AND seq = (SELECT max(seq) FROM outbox.delivery WHERE lane = 1)",
            {"mirror"},
            "lane 1: the mirror is at transaction",
        ),
        ("UPDATE outbox.delivery SET after_key = 'x' WHERE lane = 0 AND seq = 2", {"delivery_chain"}, "delivery 2 begins after"),
        ("UPDATE outbox.delivery SET events = events + 1 WHERE lane = 0 AND seq = 1", {"delivery_counts", "mirror"}, "lane 0, delivery 1:"),
        ("UPDATE outbox.lane SET events = events + 1 WHERE lane = 0", {"mirror"}, "lane 0: the mirror counts"),
        ("UPDATE outbox.lane SET cursor_key = 'k0001' WHERE lane = 0", {"mirror"}, "lane 0: the mirror is at batch"),
    ],
)  # fmt: skip
def test_what_does_not_agree_in_the_outbox_is_found_and_named(
    delivered: tuple[Settings, Outbox],
    postgres: PostgresServer,
    tmp_path: Path,
    sql: str,
    checks: set[str],
    words: str,
) -> None:
    with copy_of(postgres, delivered[0]) as settings:
        damage(settings, sql)
        report = run_audit(settings, tmp_path)
        assert failed(report).keys() == checks
        assert words in "\n".join(example for check in report.checks for example in check.examples)


def test_a_whole_outbox_is_clean_and_its_report_says_what_was_looked_at(
    delivered: tuple[Settings, Outbox], tmp_path: Path
) -> None:
    report = run_audit(delivered[0], tmp_path)
    assert failed(report) == {}
    assert (report.first_batch, report.last_batch) == (1, 4)
    assert report.counted == {"sessions": 20, "output_events": 60}


def test_limits_leave_out_what_is_not_asked_for(
    delivered: tuple[Settings, Outbox], postgres: PostgresServer, tmp_path: Path
) -> None:
    with copy_of(postgres, delivered[0]) as settings:
        damage(settings, GONE)
        assert failed(run_audit(settings, tmp_path, limits=Limits(from_batch=3))) == {}
        assert failed(run_audit(settings, tmp_path, limits=Limits(to_batch=1))) == {}
        assert "batch_counts" in failed(run_audit(settings, tmp_path, limits=Limits(2, 2)))


def test_a_requeued_row_counts_once_and_its_copy_must_be_as_it_was(
    delivered: tuple[Settings, Outbox], postgres: PostgresServer, tmp_path: Path
) -> None:
    with copy_of(postgres, delivered[0]) as settings:
        copy = Outbox.__new__(Outbox)
        copy.dsn, copy.topic, copy.lanes = settings.postgres.dsn.get_secret_value(), delivered[1].topic, 2
        copy.written = []
        copy.batch(simple(5, 1, prefix="p"))
        read_offsets(copy.dsn)
        damage(
            settings,
            f"INSERT INTO outbox.parked SELECT 'p0000', 5, 1, {copy.lane_of('p0000')}, 1, 'invalid', 'x'",
            f"SELECT outbox.requeue(ARRAY['p0000'], ARRAY[5::bigint], ARRAY[{copy.lane_of('p0000')}], 2, gen_random_uuid())",
        )
        assert failed(run_audit(settings, tmp_path)) == {}
        for limits in (Limits(to_batch=5), Limits(from_batch=5), Limits(6, 6)):
            assert failed(run_audit(settings, tmp_path, limits=limits)) == {}
        damage(settings, """UPDATE outbox.session_output SET "values"[1] = 'x' WHERE batch_id = 6""")
        report = run_audit(settings, tmp_path)
        assert failed(report).keys() == {"parked_kept", "batch_counts"}
        assert "its copy in batch 6 differs" in examples(report, "parked_kept")
        damage(settings, "DELETE FROM outbox.session_output WHERE batch_id = 6")
        pruned = scope.Scope(1, 1, 1, 7, [(1, 5), (7, 7)], True, [(1, 1, 2)], {})
        with psycopg.connect(copy.dsn, autocommit=True) as connection:
            assert check_parked(connection, pruned)[0].examples == []


def test_what_retention_has_dropped_is_left_out(
    delivered: tuple[Settings, Outbox], postgres: PostgresServer, tmp_path: Path
) -> None:
    with copy_of(postgres, delivered[0]) as settings:
        damage(
            settings,
            "UPDATE outbox.session_output SET batch_id = batch_id + 9997 WHERE batch_id > 2",
            "UPDATE outbox.batch SET batch_id = batch_id + 9997 WHERE batch_id > 2",
            "UPDATE outbox.delivery SET after_batch = 10001, after_key = NULL, to_batch = 10001, to_key = NULL,"
            " sessions = 0, events = 0 WHERE to_batch = 4",
        )
        with psycopg.connect(settings.postgres.dsn.get_secret_value(), autocommit=True) as connection:
            connection.execute("DROP TABLE outbox.session_output_p00000000")
            connection.execute("DELETE FROM outbox.delivery WHERE to_batch < 10001")
            connection.execute("UPDATE outbox.lane SET cursor_batch = 10001, cursor_key = NULL")
            connection.execute(
                "UPDATE outbox.lane l SET pruned_seq = l.seq - (SELECT count(*) FROM outbox.delivery d WHERE d.lane = l.lane)"
            )
        report = run_audit(settings, tmp_path)
        assert report.first_batch == report.rows_from == 10_000
        assert failed(report) == {}
