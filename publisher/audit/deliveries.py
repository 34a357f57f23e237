"""Checks the chain of deliveries, the mirrors and the parked rows, in SQL alone."""

from typing import Any

import psycopg

from db import windows
from db.connection import snapshot
from db.statements import queries
from publisher.audit.findings import Check
from publisher.audit.scope import Scope

_DELIVERIES = queries("publisher.audit", "deliveries")
_ROWS = queries("publisher.audit", "rows")


def check_deliveries(connection: psycopg.Connection[Any], scope: Scope) -> list[Check]:
    """Return the checks of the deliveries that need no rows."""
    kept = Check("rows_kept", "Are the partitions of all undelivered rows there?")
    mirror = Check("mirror", "Is each lane's mirror its newest delivery?")
    with snapshot(connection):
        for partition, first, last, sessions in connection.execute(_ROWS["missing_partitions"]):
            kept.add(f"{partition} is not there: batches {first} to {last} with {sessions} sessions")
        chain = _check_chain(connection, scope)
        _check_mirror(connection, mirror)
    return [kept, chain, mirror, _resumes(scope)]


def check_parked(connection: psycopg.Connection[Any], scope: Scope) -> list[Check]:
    """Return the checks of parked rows, and the notes on what is open."""
    kept = Check(
        "parked_kept", "Is every parked row still there, and every requeued copy as the original was?"
    )
    parked = Check("parked", "Are rows parked that nobody has requeued or discarded?", fails=False)
    for window in windows.cut(scope.first, scope.last):
        for batch, key, is_parked, requeued, wrong in connection.execute(
            _ROWS["parked"], window.bounds, prepare=False
        ):
            row = f"batch {batch}, session {key!r}"
            if is_parked:
                parked.add(row)
            if wrong is not None and (is_parked or scope.holds(requeued, requeued)):
                kept.add(f"{row}: {wrong}")
    removed = Check("removed_letters", "Were dead letters removed by retention?", fails=False)
    for reason, state, count, newest_at in connection.execute(_ROWS["removed_letters"]):
        removed.add(f"{count} {reason} ({state}), the newest of {newest_at:%F %T}", count)
    letters = Check("dead_letters", "Are dead letters open?", fails=False)
    allowed = connection.execute(_ROWS["may_read_letters"]).fetchone()
    if allowed is None or not allowed[0]:
        letters.question += " (not asked: only the roles outbox_auditor and outbox_writer may read them)"
        return [kept, parked, removed, letters]
    for reason, count in connection.execute(_ROWS["letters"]):
        letters.add(f"{count} {reason}", count)
    return [kept, parked, removed, letters]


def _check_chain(connection: psycopg.Connection[Any], scope: Scope) -> Check:
    check = Check("delivery_chain", "Does each delivery of a lane continue the one before it?")
    for epoch, lane, missing, wrong in connection.execute(
        _DELIVERIES["chain"], {"from_batch": scope.first, "to_batch": scope.last}
    ):
        check.add(f"epoch {epoch}, lane {lane}: {wrong}", missing)
    return check


def _check_mirror(connection: psycopg.Connection[Any], check: Check) -> None:
    for epoch, lane, wrong in connection.execute(_DELIVERIES["mirror"]):
        check.add(f"epoch {epoch}, lane {lane}: {wrong}")


def _resumes(scope: Scope) -> Check:
    check = Check("resumes", "Was a cursor moved on request?", fails=False)
    for resume in scope.resumes:
        note = f" ({resume.note})" if resume.note else ""
        check.add(f"epoch {resume.epoch}, lane {resume.lane}: from {resume.after} to {resume.to}{note}")
    return check
