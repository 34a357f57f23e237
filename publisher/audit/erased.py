"""Reads which sessions were erased. Their records stay in Kafka and are no findings."""

from collections.abc import Mapping
from typing import Any

import psycopg

from db.statements import queries
from publisher.audit.findings import Check
from publisher.audit.scope import Scope

_ERASED = queries("publisher", "erased")

ErasedEnds = Mapping[tuple[str, int], frozenset[int]]
"""{(`<topic id>/<partition>`, offset of a session's last event): the revisions in which that session was erased}."""


def check_erased(connection: psycopg.Connection[Any], scope: Scope) -> Check:
    """Return the note on erased rows of the scope's batches."""
    check = Check("erased", "Were session keys erased?", fails=False)
    row = connection.execute(
        _ERASED["counts"], {"from_batch": scope.first, "to_batch": scope.last}
    ).fetchone()
    rows, sessions, outputs, letters = row or (0, 0, 0, 0)
    if rows or letters:
        check.add(
            f"{rows} rows of {sessions} sessions with {outputs} outputs, and {letters} dead letters",
            rows + letters,
        )
    return check


def read_ends(connection: psycopg.Connection[Any]) -> ErasedEnds:
    """Return the positions of the last events of the erased sessions. Raises psycopg.Error."""
    found: dict[tuple[str, int], set[int]] = {}
    for partition, end, revision in connection.execute(_ERASED["ends"]):
        found.setdefault((partition, end), set()).add(revision)
    return {end: frozenset(revisions) for end, revisions in found.items()}


def read_topics(connection: psycopg.Connection[Any]) -> set[str]:
    """Return the output topics of erased rows. An erased output may have superseded another output of its key, or deleted the key."""
    return {name for (name,) in connection.execute(_ERASED["topics"])}
