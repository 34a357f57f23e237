"""Checks the parked rows. SQL alone."""

from typing import Any

import psycopg

from db import windows
from db.statements import queries
from publisher.audit.findings import Check
from publisher.audit.scope import Scope

_ROWS = queries("publisher.audit", "rows")


def check_parked(connection: psycopg.Connection[Any], scope: Scope) -> list[Check]:
    """Return the checks of parked rows."""
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
    return [kept, parked]
