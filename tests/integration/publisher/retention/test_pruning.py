"""Ledger and log of deliveries stay short at a cost that does not grow with what was pruned, and the audit stays right beside it."""

from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest

from contract.cursor import Cursor
from db.statements import queries
from publisher.audit.scope import Limits
from publisher.outbox.parked import parked_up_to
from publisher.retention.delivery_pruning import DeliveryPruning
from publisher.retention.retention import run_once
from publisher.status.outbox_metrics import PublisherOutboxMetrics
from service.settings import Settings
from tests.support.outbox.audits import counted, failed, fill, run_audit
from tests.support.outbox.batches import Outbox, read_offsets, simple
from tests.support.outbox.deliveries import deliver
from tests.support.outbox.old_outputs import PARTITION, add_batches, deliver_all, retention_settings
from tests.support.outbox.restoring import resume
from tests.support.processes.publishers import RelayThread
from tests.support.queries import query
from tests.support.waiting import wait_until

_PRUNING = queries("publisher.retention", "pruning")

STEP = 200
LEDGER = 40_000


def blocks(connection: psycopg.Connection[Any], sql: LiteralString, **parameters: int) -> int:
    """Run a statement; return how many blocks it touched."""
    plan = connection.execute(
        f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}",
        {"rows": STEP, **parameters},
    ).fetchone()
    assert plan is not None
    top = plan[0][0]["Plan"]
    return int(top["Shared Hit Blocks"] + top["Shared Read Blocks"])


def test_a_step_through_the_ledger_does_not_look_again_at_what_former_ones_deleted(database: str) -> None:
    Outbox(database, "out")
    add_batches(database, LEDGER)
    deliver_all(database, LEDGER)
    query(database, "SELECT outbox.ensure_partitions(%s, %s)", LEDGER, LEDGER)
    query(
        database,
        "SELECT outbox.drop_partition(p.name) FROM outbox.output_partition p WHERE p.to_batch < %s",
        LEDGER,
    )
    touched = []
    with psycopg.connect(database, autocommit=True) as pruner, psycopg.connect(database) as dump:
        # While an older snapshot lives, each deleted row must be visited to learn that it is gone.
        dump.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        dump.execute("SELECT 1")
        for after in range(0, LEDGER - STEP, STEP):
            touched.append(blocks(pruner, _PRUNING["batches"], keep_s=60, after=after))
        assert query(database, "SELECT count(*) FROM outbox.batch") == [(STEP,)]
    assert max(touched[-5:]) <= 1.2 * max(touched[:5])


def test_a_step_through_the_deliveries_does_not_look_again_at_what_former_ones_deleted(database: str) -> None:
    Outbox(database, "out", lanes=1)
    add_batches(database, 1)
    deliver_all(database, LEDGER, lanes=1)
    query(
        database,
        "INSERT INTO outbox.delivery (epoch, lane, seq, after_batch, to_batch, sessions, events, committed_at)"
        " SELECT 1, 0, n, n - 1, n, 1, 1, now() - interval '9 days' FROM generate_series(1, %s) n",
        LEDGER,
    )
    touched = []
    with psycopg.connect(database, autocommit=True) as pruner, psycopg.connect(database) as dump:
        dump.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        dump.execute("SELECT 1")
        for _ in range(LEDGER // STEP - 1):
            touched.append(blocks(pruner, _PRUNING["deliveries"], epoch=1, lane=0, keep_s=60))
    assert query(database, "SELECT min(seq), max(seq) FROM outbox.delivery") == [(LEDGER - STEP + 1, LEDGER)]
    assert max(touched[-5:]) <= 1.2 * max(touched[:5])


def test_lane_epochs_go_with_what_they_delivered_and_the_ledger_rows_that_only_they_named(
    database: str,
) -> None:
    outbox = Outbox(database, "out")
    outbox.batch(simple(1, 3))
    add_batches(database, 3 * PARTITION + 5, every=500)
    for epoch, from_batch, lanes in ((2, 5_001, 4), (3, 15_001, 1), (4, 3 * PARTITION, 2)):
        outbox.add_epoch(epoch, from_batch, lanes)
    query(database, "UPDATE outbox.lane_epoch SET created_at = now() - interval '9 days'")
    query(
        database,
        "INSERT INTO outbox.lane (epoch, lane, seq, cursor_batch, cursor_commit_id)"
        " SELECT p.epoch, p.lane, 1, p.last_batch, gen_random_uuid() FROM outbox.lane_position p",
    )
    query(
        database,
        "INSERT INTO outbox.delivery (epoch, lane, seq, after_batch, to_batch, sessions, events, committed_at)"
        " SELECT p.epoch, p.lane, 1, p.from_batch - 1, p.cursor_batch, 1, 1, now() - interval '9 days' FROM outbox.lane_position p",
    )
    query(
        database,
        "UPDATE outbox.lane SET stopped_reason = 'resuming', stopped_why = 'resuming' WHERE epoch = 3",
    )
    report = run_once(retention_settings(database, keep_ledger_s=3_600))
    assert (report.dropped, report.pruned.epochs) == (["session_output_p00000000"], 1)
    query(database, "UPDATE outbox.lane SET stopped_reason = NULL, stopped_why = NULL")
    report = run_once(retention_settings(database, keep_ledger_s=3_600))
    assert (len(report.dropped), report.pruned.epochs) == (2, 2)
    assert query(database, "SELECT epoch, from_batch FROM outbox.lane_epoch") == [(4, 3 * PARTITION)]
    for table in ("lane", "delivery"):
        assert query(database, f"SELECT DISTINCT epoch FROM outbox.{table}") == [(4,)]  # noqa: S608
    assert query(database, "SELECT count(*) FROM outbox.batch WHERE batch_id IN (5000, 15000)") == [(0,)]
    for check in ("check_delivery_chain", "check_stray_row", "check_rows_kept"):
        assert query(database, f"SELECT * FROM outbox.{check}") == []  # noqa: S608


PARK = (
    "INSERT INTO outbox.parked (session_key, batch_id, epoch, lane, lease_token, reason, detail, state, requeued_batch, state_changed_at)"
    " VALUES (%s, 10, 1, 0, 1, 'too_large', 'test', %s, %s, now() - make_interval(secs => %s))"
)


def test_parked_rows_end_with_what_the_audit_needs_them_for_and_their_epoch_after_them(
    database: str,
) -> None:
    """A row of the ended epoch was parked: the epoch could never be deleted, and every later run failed at it."""
    outbox = Outbox(database, "out")
    outbox.batch(simple(1, 3))
    add_batches(database, 3 * PARTITION + 5, every=500)
    outbox.add_epoch(2, 5_001, 4)
    query(database, "UPDATE outbox.lane_epoch SET created_at = now() - interval '9 days'")
    query(
        database,
        "INSERT INTO outbox.lane (epoch, lane, seq, cursor_batch, cursor_commit_id)"
        " SELECT p.epoch, p.lane, 1, p.last_batch, gen_random_uuid() FROM outbox.lane_position p",
    )
    day_s = 86_400
    rows: list[tuple[str, str, int | None, int]] = [
        ("old", "discarded", None, 9 * day_s),
        ("copied", "requeued", 20, 9 * day_s),
        ("copied late", "requeued", 3 * PARTITION + 1, 9 * day_s),
        ("young", "discarded", None, 60),
    ]
    for key, state, requeued, age_s in rows:
        query(database, PARK, key, state, requeued, age_s)
    kept = retention_settings(database, keep_ledger_s=3_600)
    pruned = run_once(kept).pruned
    assert (pruned.parked, pruned.epochs) == (2, 0)
    left = "SELECT session_key FROM outbox.parked ORDER BY session_key"
    assert query(database, left) == [("copied late",), ("young",)]
    with psycopg.connect(database, autocommit=True) as connection:
        # What Kafka's record counts is still accounted for, or a resume would take the database for an older one.
        assert parked_up_to(connection, 1, 0, Cursor(5_000)) == 4
    query(database, "DELETE FROM outbox.parked WHERE session_key = 'copied late'")
    query(database, "UPDATE outbox.parked SET state_changed_at = now() - interval '9 days'")
    pruned = run_once(kept).pruned
    assert (pruned.parked, pruned.epochs) == (1, 1)
    assert query(database, "SELECT epoch FROM outbox.lane_epoch") == [(2,)]


def test_the_operator_log_ends_and_says_so(database: str) -> None:
    Outbox(database, "out")
    for days in (400, 366, 364, 1):
        query(
            database,
            "INSERT INTO outbox.operation (at, os_user, host, command, arguments, result)"
            " VALUES (now() - make_interval(days => %s), 'ann', 'host', 'publisher lanes set', '{}', '{}')",
            days,
        )
    report = run_once(retention_settings(database))
    assert report.pruned.operations == 2
    assert query(
        database, "SELECT command, result FROM outbox.operation WHERE at > now() - interval '365 days'"
    ) == [
        ("publisher lanes set", {}),
        ("publisher lanes set", {}),
        ("publisher retention run", {"operations": 2}),
    ]
    assert query(database, "SELECT count(*) FROM outbox.operation") == [(3,)]


def test_a_resume_that_is_removed_is_in_the_operator_log(database: str) -> None:
    Outbox(database, "out", lanes=1)
    add_batches(database, 2 * PARTITION + 5, every=500)
    deliver_all(database, 2 * PARTITION + 5, lanes=1)
    query(
        database,
        "INSERT INTO outbox.delivery (epoch, lane, seq, after_batch, to_batch, sessions, events, kind)"
        " VALUES (1, 0, 1, 7, 5, 0, 0, 'resume')",
    )
    query(database, "UPDATE outbox.lane SET seq = 2, pruned_seq = 1")
    run_once(retention_settings(database))
    assert query(database, "SELECT count(*) FROM outbox.delivery") == [(0,)]
    assert query(
        database,
        "SELECT result FROM outbox.operation WHERE command = 'publisher retention run' AND result ? 'resumes'",
    ) == [({"resumes": 1},)]


def test_a_run_that_failed_says_so_where_the_metrics_find_it(database: str) -> None:
    Outbox(database, "out")
    add_batches(database, 5)
    said = "SELECT failed, ended_at IS NOT NULL FROM outbox.retention"
    assert query(database, said) == [(None, False)]
    query(
        database,
        "CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not this one'; END $$;"
        " CREATE TRIGGER keep BEFORE DELETE ON outbox.publisher_process FOR EACH STATEMENT EXECUTE FUNCTION public.refuse()",
    )
    with pytest.raises(psycopg.errors.RaiseException):
        run_once(retention_settings(database))
    ((failed, ended),) = query(database, said)
    assert (failed.startswith("not this one"), ended) == (True, True)
    gauges = PublisherOutboxMetrics(60.0)

    def failed_says() -> list[float]:
        samples = [sample for family in gauges.collect() for sample in family.samples]
        return [sample.value for sample in samples if sample.name == "outbox_retention_failed"]

    with psycopg.connect(database, autocommit=True) as connection:
        gauges.poll(connection)
        assert failed_says() == [1]
        query(database, "DROP TRIGGER keep ON outbox.publisher_process")
        run_once(retention_settings(database))
        gauges.poll(connection)
    assert failed_says() == [0]
    assert query(database, said) == [(None, True)]


def test_the_publisher_keeps_its_log_short_by_itself_and_the_audit_stays_right(
    outbox: Outbox, settings: Settings, tmp_path: Path
) -> None:
    """Outputs are kept for ever here, nobody runs retention, and a resume sent some of them again."""
    fill(outbox)
    read_offsets(outbox.dsn)
    deliver(settings)
    resume(settings, "--from", "batch", "3", "--yes")
    deliver(settings)
    query(outbox.dsn, "UPDATE outbox.delivery SET committed_at = committed_at - interval '4 days'")

    def left() -> list[tuple[int, str, int]]:
        found: list[tuple[int, str, int]] = query(
            outbox.dsn, "SELECT lane, kind, count(*) FROM outbox.delivery GROUP BY 1, 2 ORDER BY 1, 2"
        )
        return found

    kept = [(0, "delivery", 1), (0, "resume", 1), (1, "delivery", 1), (1, "resume", 1)]
    with RelayThread(settings):
        wait_until(
            lambda: left() == kept, lambda: f"the newest delivery and the resume of each lane: {left()}"
        )
    for limits in (Limits(), Limits(from_batch=3), Limits(to_batch=2)):
        report = run_audit(settings, tmp_path, kafka=True, limits=limits)
        assert failed(report) == {}
    assert counted(report, "records_sent_again_by_resume") == 0
    assert counted(run_audit(settings, tmp_path, kafka=True), "records_sent_again_by_resume") == 30
    assert query(outbox.dsn, "SELECT * FROM outbox.audit_reconciliation") == []


def test_a_log_that_cannot_be_pruned_does_not_stop_the_delivery(outbox: Outbox, settings: Settings) -> None:
    """Whatever the reason: here a trigger, which somebody may have made to keep the log."""
    fill(outbox)
    deliver(settings)
    outbox.batch(simple(98, keys=8))
    deliver(settings)
    query(
        outbox.dsn,
        "UPDATE outbox.delivery SET committed_at = committed_at - interval '4 days';"
        " CREATE SEQUENCE public.refused; GRANT USAGE ON SEQUENCE public.refused TO PUBLIC;"
        " CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN PERFORM nextval('public.refused'); RAISE EXCEPTION 'kept for the auditors'; END $$;"
        " CREATE TRIGGER keep BEFORE DELETE ON outbox.delivery FOR EACH ROW EXECUTE FUNCTION public.refuse()",
    )
    with RelayThread(settings) as relay:
        wait_until(
            lambda: query(outbox.dsn, "SELECT is_called FROM public.refused") == [(True,)],
            "an attempt to prune",
        )
        newest = outbox.batch(simple(99, keys=8))
        through = "SELECT min(through_batch) FROM outbox.lane_position"
        wait_until(
            lambda: query(outbox.dsn, through) == [(newest,)] or relay.ended(),
            "the batch after it is delivered",
        )
        assert not relay.ended(), relay.error


def test_what_a_lane_that_was_set_back_had_delivered_stays_until_it_is_there_again(database: str) -> None:
    Outbox(database, "out", lanes=1)
    add_batches(database, 1)
    deliver_all(database, 40, lanes=1)
    query(
        database,
        "INSERT INTO outbox.delivery (epoch, lane, seq, after_batch, to_batch, sessions, events, committed_at)"
        " SELECT 1, 0, n, (n - 1) * 10, n * 10, 1, 1, now() - interval '9 days' FROM generate_series(1, 8) n",
    )
    with psycopg.connect(database, autocommit=True) as connection:
        pruning = DeliveryPruning(60, rows_at_once=3)
        assert pruning.whole_pass(connection) == 4
        deliver_all(database, 80, lanes=1)
        assert pruning.whole_pass(connection) == 3
    assert query(database, "SELECT seq FROM outbox.delivery") == [(8,)]
