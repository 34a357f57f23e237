"""Reports open and removed dead letters as notes; SQL counts."""

from typing import Any

import psycopg

from db.statements import queries
from publisher.audit.findings import Check

_ROWS = queries("publisher.audit", "rows")


def check_letters(connection: psycopg.Connection[Any]) -> list[Check]:
    """Return notes on removed and open dead letters."""
    removed = Check("removed_letters", "Were dead letters removed by retention?", fails=False)
    for reason, state, count, newest_at in connection.execute(_ROWS["removed_letters"]):
        removed.add(f"{count} {reason} ({state}), the newest of {newest_at:%F %T}", count)
    letters = Check("dead_letters", "Are dead letters open?", fails=False)
    allowed = connection.execute(_ROWS["may_read_letters"]).fetchone()
    if allowed is None or not allowed[0]:
        letters.question += " (not asked: only the roles outbox_auditor and outbox_writer may read them)"
        return [removed, letters]
    for reason, count in connection.execute(_ROWS["letters"]):
        letters.add(f"{count} {reason}", count)
    return [removed, letters]
