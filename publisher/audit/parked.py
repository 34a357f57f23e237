"""Checks the parked rows and notes open and removed dead letters, in SQL alone."""

from typing import Any

import psycopg

from db import windows
from db.statements import queries
from publisher.audit.findings import Check
from publisher.audit.scope import Scope

_ROWS = queries("publisher.audit", "rows")


def check_parked(connection: psycopg.Connection[Any], scope: Scope) -> list[Check]:
    """Return the checks of parked rows, and notes on open and removed dead letters."""
    kept = Check(
        "parked_kept", "Is every parked row still there, and does every requeued copy equal its original?"
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
