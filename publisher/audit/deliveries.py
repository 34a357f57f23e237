"""The checks over deliveries, mirrors and what was put aside: SQL alone."""

from collections.abc import Callable
from typing import Any

import psycopg

from db.statements import statement
from publisher.audit import SQL
from publisher.audit.findings import Check
from publisher.audit.scope import Scope
from publisher.cursor import Cursor

_DELIVERIES = 500


def check_deliveries(
    connection: psycopg.Connection[Any], scope: Scope, advance: Callable[[int], None]
) -> list[Check]:
    """Return the checks of the deliveries. `advance` is called with the number of sessions that were looked at."""
    counts = Check(
        "delivery_counts", "Did each delivery send the rows of its cursor range, but those put aside?"
    )
    for epoch, lane in scope.cursors:
        _check_counts(connection, scope, epoch, lane, counts, advance)
    mirror = Check("mirror", "Is each lane's mirror its newest delivery?")
    with connection.transaction():
        connection.execute(statement("publisher", "snapshot"))
        chain = _check_chain(connection, scope)
        _check_mirror(connection, mirror)
    return [chain, counts, mirror, _resumes(scope)]


def check_parked(connection: psycopg.Connection[Any], scope: Scope) -> list[Check]:
    """Return the checks of rows that were put aside, and the notes on what is open."""
    kept = Check(
        "parked_kept", "Is every parked row still there, and every requeued copy as the original was?"
    )
    parked = Check("parked", "Are rows parked that nobody has requeued or discarded?", fails=False)
    bounds = {"from_batch": scope.first, "to_batch": scope.last}
    for batch, key, is_parked, requeued, wrong in connection.execute(statement(SQL, "parked"), bounds):
        row = f"batch {batch}, session {key!r}"
        if is_parked:
            parked.add(row)
        if wrong is not None and (is_parked or scope.holds(requeued, requeued)):
            kept.add(f"{row}: {wrong}")
    letters = Check("dead_letters", "Are dead letters open?", fails=False)
    allowed = connection.execute(statement(SQL, "may_read_letters")).fetchone()
    if allowed is None or not allowed[0]:
        letters.question += " (not asked: only the roles outbox_auditor and outbox_writer may read them)"
        return [kept, parked, letters]
    for reason, count in connection.execute(statement(SQL, "letters")):
        letters.add(f"{count} {reason}", count)
    return [kept, parked, letters]


def _check_chain(connection: psycopg.Connection[Any], scope: Scope) -> Check:
    check = Check("delivery_chain", "Does each delivery of a lane continue the one before it?")
    for epoch, lane, missing, wrong in connection.execute(
        statement(SQL, "delivery_chain"), {"from_batch": scope.first, "to_batch": scope.last}
    ):
        check.add(f"epoch {epoch}, lane {lane}: {wrong}", missing)
    return check


def _check_counts(
    connection: psycopg.Connection[Any],
    scope: Scope,
    epoch: int,
    lane: int,
    check: Check,
    advance: Callable[[int], None],
) -> None:
    seq = 0
    while True:
        rows = connection.execute(
            statement(SQL, "delivery_counts"),
            {"epoch": epoch, "lane": lane, "after_seq": seq, "deliveries": _DELIVERIES},
        ).fetchall()
        for seq, sessions, events, held, held_events, after, after_key, to, to_key in rows:
            first = after if after_key is not None else after + 1
            if first <= to and not scope.holds(first, to):
                continue
            advance(sessions)
            if (sessions, events) != (held, held_events):
                check.add(
                    f"epoch {epoch}, lane {lane}, delivery {seq}: {sessions} sessions with {events} events, but its range "
                    f"from {Cursor(after, after_key)} (exclusive) to {Cursor(to, to_key)} holds {held} with {held_events}"
                )
        if len(rows) < _DELIVERIES:
            return


def _check_mirror(connection: psycopg.Connection[Any], check: Check) -> None:
    for epoch, lane, wrong in connection.execute(statement(SQL, "mirror")):
        check.add(f"epoch {epoch}, lane {lane}: {wrong}")


def _resumes(scope: Scope) -> Check:
    check = Check("resumes", "Was a cursor moved on request?", fails=False)
    for resume in scope.resumes:
        note = f" ({resume.note})" if resume.note else ""
        check.add(f"epoch {resume.epoch}, lane {resume.lane}: from {resume.after} to {resume.to}{note}")
    return check
