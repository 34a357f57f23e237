"""Checks the chain of deliveries, the mirrors and undelivered rows, in SQL alone. `delivery_counts` is in ledger.py."""

from typing import Any

import psycopg

from db.connection import snapshot
from db.statements import queries
from publisher.audit.findings import Check
from publisher.audit.scope import Scope
from publisher.status.publisher_status import read_status

_DELIVERIES = queries("publisher.audit", "deliveries")
_ROWS = queries("publisher.audit", "rows")


def check_deliveries(connection: psycopg.Connection[Any], scope: Scope) -> list[Check]:
    """Return the checks of deliveries that read no rows."""
    kept = Check("rows_kept", "Are the partitions of all undelivered rows there?")
    mirror = Check("mirror", "Is each lane's mirror its newest delivery?")
    with snapshot(connection):
        for partition, first, last, sessions in connection.execute(_ROWS["missing_partitions"]):
            kept.add(f"{partition} is not there: batches {first} to {last} with {sessions} sessions")
        chain = _check_chain(connection, scope)
        _check_mirror(connection, mirror)
    return [kept, chain, mirror, _resumes(scope)]


def check_undelivered(connection: psycopg.Connection[Any]) -> Check:
    """Return the note on rows that wait to be delivered."""
    check = Check("undelivered", "Do rows wait to be delivered?", fails=False)
    for lane in read_status(connection).lanes:
        if lane.lag_rows:
            stopped = f"; stopped: {lane.stopped_reason}" if lane.is_stopped else ""
            check.add(
                f"epoch {lane.epoch}, lane {lane.lane}: {lane.lag_rows} rows, the oldest for {lane.oldest_undelivered_s or 0:.1f} s"
                f"{stopped}",
                lane.lag_rows,
            )
    return check


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
