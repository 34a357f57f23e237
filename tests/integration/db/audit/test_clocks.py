"""A clock that was set back is no finding, and no view of the audit goes by it: order comes from numbers."""

import re
from collections import Counter
from typing import Any, LiteralString

import pytest
from psycopg import sql

from db.migrate import downgrade, upgrade
from tests.support.outbox.audited import fill_audited_outbox, minutes
from tests.support.outbox.valid_rows import OutboxRows

TIMES = """
    SELECT c.table_name, c.column_name
    FROM information_schema.columns c
    JOIN information_schema.tables t USING (table_schema, table_name)
    WHERE t.table_schema = 'outbox' AND t.table_type = 'BASE TABLE' AND c.data_type = 'timestamp with time zone'"""
COLUMNS = """
    SELECT c.table_name, array_agg(c.column_name::text ORDER BY c.ordinal_position)
    FROM information_schema.columns c
    WHERE c.table_schema = 'outbox' AND (c.table_name ~ '^(audit|check)_' OR c.table_name IN ('event', 'output_row'))
      AND c.table_name <> ALL (%s) AND c.data_type NOT IN ('timestamp with time zone', 'interval')
    GROUP BY c.table_name"""
BY_TIME = ["audit_minute", "audit_topic_minute", "audit_service", "audit_ledger"]
"""Views that say how much there was in a time, who lives now, and, as a note, that the clock was set back."""


@pytest.fixture
def parked_on_the_second_pass(audited_outbox: OutboxRows) -> OutboxRows:
    """Lane 0 sent row b of batch 4 in its second transaction, was led back by a resume, and then parked the row."""
    park_on_the_second_pass(audited_outbox, after_seq=3)
    return audited_outbox


NOON = "timestamptz '2026-01-01 12:00+00'"


@pytest.mark.parametrize(
    "clock",
    [f"{NOON} - ({{0}} - {NOON})", NOON, "{0} - random() * interval '1 day'"],
    ids=["backwards", "still", "random"],
)
def test_no_view_goes_by_the_clock(parked_on_the_second_pass: OutboxRows, clock: LiteralString) -> None:
    outbox = parked_on_the_second_pass
    before = seen(outbox)
    set_clocks(outbox, clock)
    after = seen(outbox)
    assert {view for view in before if before[view] != after[view]} == set()
    assert outbox.rows("SELECT * FROM outbox.audit_reconciliation") == []
    assert outbox.rows("SELECT * FROM outbox.audit_reconcile(1, 5)") == []
    assert outbox.rows("SELECT * FROM outbox.audit_ledger WHERE problem <> 'time'") == []


def test_what_was_parked_before_the_upgrade_is_counted_as_its_lane_came_by(outbox: OutboxRows) -> None:
    downgrade(outbox.dsn, "0009")
    fill_audited_outbox(outbox)
    park_on_the_second_pass(outbox)
    upgrade(outbox.dsn)
    assert outbox.rows("SELECT session_key, after_seq FROM outbox.parked ORDER BY 1") == [("b", 3), ("d", 0)]
    assert outbox.rows("SELECT * FROM outbox.audit_reconciliation") == []


def park_on_the_second_pass(outbox: OutboxRows, **more: Any) -> None:
    outbox.insert("delivery", lane=0, seq=3, kind="resume", after_batch=4, to_batch=3, sessions=0, events=0,
                  committed_at=minutes(7))  # fmt: skip
    outbox.insert("parked", session_key="b", batch_id=4, lane=0, created_at=minutes(7.5), **more)
    outbox.insert(
        "delivery", lane=0, seq=4, after_batch=3, to_batch=4, sessions=1, events=2, committed_at=minutes(8)
    )
    outbox.connection.execute("UPDATE outbox.lane SET seq = 4 WHERE lane = 0")


def set_clocks(outbox: OutboxRows, clock: LiteralString) -> None:
    """Set every time that is stored; {0} stands for its column."""
    for table, column in outbox.rows(TIMES):
        name = sql.Identifier(column)
        outbox.connection.execute(
            sql.SQL("UPDATE {} SET {} = {} WHERE {} IS NOT NULL").format(
                sql.Identifier("outbox", table),
                name,
                sql.SQL(clock).format(name),
                name,
            )
        )


def seen(outbox: OutboxRows) -> dict[str, Counter[str]]:
    """What each view shows apart from times."""
    return {
        view: Counter(
            re.sub(r"between [^,']*", "", str(row))
            for row in outbox.connection.execute(
                sql.SQL("SELECT {} FROM {}").format(
                    sql.SQL(", ").join(map(sql.Identifier, columns)), sql.Identifier("outbox", view)
                )
            )
        )
        for view, columns in outbox.rows(COLUMNS, BY_TIME)
    }
