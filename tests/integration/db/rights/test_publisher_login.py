"""What somebody with the publisher's login can do to the others by the columns of `outbox.lane` and `outbox.identity` that it may write."""

from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import errors, sql

from spark_job.sink.backpressure import BacklogReader
from tests.support.outbox.valid_rows import OutboxRows
from tests.support.rights.declared import PUBLISHER, UPDATABLE

GREATEST = 2**63 - 1
MIRROR: dict[str, Any] = {
    "seq": GREATEST,
    "cursor_batch": GREATEST,
    "cursor_key": "\U0010ffff",
    "cursor_commit_id": UUID(int=7),
    "sessions": GREATEST,
    "events": GREATEST,
}
LEASE: dict[str, Any] = {
    "lease_token": GREATEST,
    "lease_holder": "\x1b[2J",
    "lease_until": "infinity",
    "lease_backend_pid": 1,
    "lease_backend_start": "-infinity",
}
SHOWN: dict[str, Any] = {
    "stopped_reason": "<script>\x1b]0;x\x07\u202e",
    "stopped_why": "resuming",
    "mirrored_at": "-infinity",
    "taken": GREATEST,
}


def set_as_publisher(dsn: str, columns: dict[str, Any]) -> None:
    """Write columns of lane 0 with the rights of the publisher and no more."""
    assignments = sql.SQL(", ").join(
        sql.SQL("{} = {}").format(sql.Identifier(name), sql.Literal(value)) for name, value in columns.items()
    )
    with psycopg.connect(dsn, options=f"-c role={PUBLISHER}") as hostile:
        hostile.execute(sql.SQL("UPDATE outbox.lane SET {} WHERE lane = 0").format(assignments))


def failed_checks(outbox: OutboxRows) -> set[str]:
    return {name for (name,) in outbox.rows("SELECT check_name FROM outbox.audit_reconciliation")}


def test_these_are_all_columns_that_it_may_write() -> None:
    assert {*MIRROR, *LEASE, *SHOWN} == UPDATABLE[PUBLISHER]["lane"]


@pytest.mark.parametrize("column", MIRROR)
def test_a_mirror_without_its_delivery_is_found_by_the_audit_and_ends_no_job(
    audited_outbox: OutboxRows, column: str
) -> None:
    set_as_publisher(audited_outbox.dsn, {column: MIRROR[column]})
    assert failed_checks(audited_outbox) == {"mirror"}
    assert BacklogReader(audited_outbox.connection).read().events >= 0


@pytest.mark.parametrize("columns", [LEASE, SHOWN], ids=["lease", "shown"])
def test_leases_and_what_is_shown_of_a_lane_change_no_count_and_no_check(
    audited_outbox: OutboxRows, columns: dict[str, Any]
) -> None:
    before = BacklogReader(audited_outbox.connection).read()
    set_as_publisher(audited_outbox.dsn, columns)
    assert failed_checks(audited_outbox) == set()
    assert BacklogReader(audited_outbox.connection).read() == before


def test_the_job_is_held_back_by_no_more_than_the_outputs_that_are_kept(audited_outbox: OutboxRows) -> None:
    everything = audited_outbox.value("SELECT sum(output_events)::bigint FROM outbox.batch")
    set_as_publisher(audited_outbox.dsn, {"cursor_batch": 0, "cursor_key": None, "cursor_commit_id": None})
    assert BacklogReader(audited_outbox.connection).read().events == everything


BINDING: dict[str, Any] = {
    "cluster_id": "other",
    "transactional_id_prefix": None,
    "output_topic_ids": '{"a": "2"}',
    "system_identifier": 7,
    "timeline": 7,
}


def test_these_are_all_columns_of_the_binding_that_it_may_write() -> None:
    assert {*BINDING} == UPDATABLE[PUBLISHER]["identity"]


@pytest.mark.parametrize("column", BINDING)
def test_the_publisher_binds_the_outbox_unseen_and_replaces_no_part_of_it_so(
    outbox: OutboxRows, column: str
) -> None:
    logged = "SELECT command, login = session_user, result -> 'before' ->> %s::text FROM outbox.operation"
    with psycopg.connect(outbox.dsn, autocommit=True, options=f"-c role={PUBLISHER}") as hostile:
        for bound in (
            """UPDATE outbox.identity SET cluster_id = 'c', transactional_id_prefix = 'p', output_topic_ids = '{"a": "1"}'""",
            """UPDATE outbox.identity SET output_topic_ids = '{"b": "1"}' || output_topic_ids""",
        ):
            hostile.execute(bound.encode())
        assert outbox.rows(logged, column) == []
        shown = sql.SQL("SELECT {}::text FROM outbox.identity").format(sql.Identifier(column))
        ((before,),) = outbox.connection.execute(shown).fetchall()
        hostile.execute(
            sql.SQL("UPDATE outbox.identity SET {} = {}").format(
                sql.Identifier(column), sql.Literal(BINDING[column])
            )
        )
        assert outbox.rows(logged, column) == [("outbox.identity", True, before)]
        with pytest.raises(errors.InsufficientPrivilege):
            hostile.execute("DELETE FROM outbox.operation")


def test_a_transaction_that_stays_open_dates_no_delivery_back(outbox: OutboxRows) -> None:
    """Deliveries are kept for at least an hour; now() is the time at which the transaction began."""
    outbox.insert_parents("delivery")
    with psycopg.connect(outbox.dsn, options=f"-c role={PUBLISHER}") as hostile:
        began = hostile.execute("SELECT now() FROM pg_sleep(0.1)").fetchone()
        hostile.execute(
            "INSERT INTO outbox.delivery (epoch, lane, seq, to_batch, sessions, events) VALUES (1, 0, 1, 1, 1, 1)"
        )
    assert began is not None
    assert outbox.value("SELECT committed_at - %s > '0.1 s' FROM outbox.delivery", *began)


def test_a_replay_that_it_ends_is_kept_as_long_as_any_other(outbox: OutboxRows) -> None:
    """An audit needs the replay's row while its records may be in Kafka."""
    outbox.insert_parents("replay")
    outbox.insert("replay")
    with psycopg.connect(outbox.dsn, options=f"-c role={PUBLISHER}") as hostile:
        hostile.execute("UPDATE outbox.replay SET state = 'cancelled', state_changed_at = '-infinity'")
    assert outbox.value("SELECT outbox.prune_replays(3600, 10)") == 0
