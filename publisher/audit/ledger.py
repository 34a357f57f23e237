"""Checks the ledger, its rows and `delivery_counts` in SQL alone. Counts and lanes are checked in ranges of batches, each in its own
snapshot.

SQL views and functions decide what is wrong (`check_…`, `audit_ledger`); docs/audit.md shows them to people. This module cuts the ranges
and writes the texts.

`Scope` holds for every later snapshot: rows never change, retention and erasure are kept away, and deliveries are only added or pruned as a
whole. All checks that read the rows of a range run together, while Postgres has the rows in memory. Checking one lane after another would
read the table from disk once for each lane.
"""

from collections.abc import Callable
from typing import Any

import psycopg

from contract.cursor import Cursor
from db.connection import snapshot
from db.statements import queries
from publisher.audit.findings import Check
from publisher.audit.scope import AuditedRange, Scope, ranges

_DELIVERIES = queries("publisher.audit", "deliveries")
_LEDGER = queries("publisher.audit", "ledger")
_ROWS = queries("publisher.audit", "rows")

Advance = Callable[[int], None]
"""Called with the number of sessions that were checked since the last call."""


def check_ledger(connection: psycopg.Connection[Any], scope: Scope, advance: Advance) -> list[Check]:
    """Return the checks of the ledger and its rows."""
    bounds = {"from_batch": scope.first, "to_batch": scope.last}
    counts = Check("batch_counts", "Do the counts of each ledger row equal what its rows hold?")
    orphans = Check("rows_in_ledger", "Is the batch of every row in the ledger?")
    lanes = Check("lanes", "Does every row's lane exist in its epoch?")
    delivered = Check(
        "delivery_counts",
        "Did each delivery send every row between its two cursors, except parked ones?",
    )
    for batches in ranges(connection, scope.kept):
        with snapshot(connection):
            _check_counts(connection, batches, counts, orphans)
            _check_lanes(connection, batches, lanes)
            _check_delivered(connection, batches, scope, delivered)
        advance(batches.sessions)
    return [
        _check_gaps(connection, bounds),
        counts,
        orphans,
        _check_stream(connection, bounds),
        *_check_offsets(connection, bounds),
        _check_emitted_once(connection, scope),
        lanes,
        delivered,
    ]


def _check_gaps(connection: psycopg.Connection[Any], bounds: dict[str, int]) -> Check:
    check = Check("ledger_dense", "Is there a ledger row for every batch id?")
    for first, last in connection.execute(_LEDGER["gaps"], bounds):
        missing = f"batch {first} is" if first == last else f"batches {first} to {last} are"
        check.add(f"{missing} missing", last - first + 1)
    return check


def _check_counts(
    connection: psycopg.Connection[Any], batches: AuditedRange, counts: Check, orphans: Check
) -> None:
    bounds = {"from_batch": batches.first, "to_batch": batches.last}
    names = ("sessions", "output events", "output bytes")
    for batch_id, orphan, *numbers in connection.execute(_LEDGER["batch_counts"], bounds, prepare=False):
        if orphan:
            orphans.add(f"batch {batch_id}: rows with {numbers[3]} sessions, and no ledger row")
            continue
        wrong = [
            f"{said} {name}, its rows hold {held}"
            for name, said, held in zip(names, numbers[:3], numbers[3:], strict=True)
            if said != held
        ]
        counts.add(f"batch {batch_id}: the ledger says {'; '.join(wrong)}")


def _check_lanes(connection: psycopg.Connection[Any], batches: AuditedRange, check: Check) -> None:
    bounds = {"from_batch": batches.first, "to_batch": batches.last}
    for batch_id, key, lane, epoch, lanes in connection.execute(_ROWS["stray"], bounds, prepare=False):
        has = "no epoch begins before it" if epoch is None else f"epoch {epoch} has {lanes} lanes"
        check.add(f"batch {batch_id}, session {key!r}: lane {lane}, but {has}")


def _check_delivered(
    connection: psycopg.Connection[Any], batches: AuditedRange, scope: Scope, check: Check
) -> None:
    """Check the deliveries that end in these batches, except those that began in batches that are not kept or not audited."""
    bounds = {"from_batch": batches.first, "to_batch": batches.last}
    for (
        epoch,
        lane,
        seq,
        sessions,
        events,
        held,
        held_events,
        after,
        after_key,
        to,
        to_key,
    ) in connection.execute(_DELIVERIES["counts"], bounds, prepare=False):
        first = after if after_key is not None else after + 1
        if first <= to and not scope.holds(first, to):
            continue
        check.add(
            f"epoch {epoch}, lane {lane}, delivery {seq}: {sessions} sessions with {events} events, but its range "
            f"from {Cursor(after, after_key)} (exclusive) to {Cursor(to, to_key)} holds {held} with {held_events}"
        )


def _check_stream(connection: psycopg.Connection[Any], bounds: dict[str, int]) -> Check:
    check = Check(
        "stream_continuity", "Does each stream batch begin where the previous one of its generation ended?"
    )
    for (wrong,) in connection.execute(_LEDGER["discontinuities"], bounds):
        check.add(wrong)
    return check


def _check_offsets(connection: psycopg.Connection[Any], bounds: dict[str, int]) -> list[Check]:
    """Check offsets and times. A clock that was set back is only a note."""
    offsets = Check("ledger_forward", "Is no batch's start offset or safe offset beyond its end offset?")
    times = Check("ledger_times", "Was the database's clock set back between two batches?", fails=False)
    for batch, is_time, wrong in connection.execute(_LEDGER["offsets_and_times"], bounds):
        (times if is_time else offsets).add(f"batch {batch}: {wrong}")
    return [offsets, times]


def _check_emitted_once(connection: psycopg.Connection[Any], scope: Scope) -> Check:
    check = Check("emitted_once", "Was each session emitted only once per revision?")
    bounds = {"from_batch": scope.first, "to_batch": scope.last}
    for key, topic_id, partition, end, times, first, last in connection.execute(
        _ROWS["emitted_twice"], bounds
    ):
        where = (
            f"in batch {first} and again in batch {last}"
            if first != last
            else f"more than once in batch {last}"
        )
        check.add(f"session {key!r} ending at {topic_id}/{partition}/{end}: {where}", times - 1)
    return check
