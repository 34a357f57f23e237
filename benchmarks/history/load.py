"""Fills an empty outbox with the week, as the services would have: rows by the sink's COPY, and everything that goes with them."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import groupby
from typing import Any
from uuid import UUID

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from benchmarks.history import deliveries as publishing
from benchmarks.history import rows, week
from benchmarks.history.week import INPUT_TOPIC, INPUT_TOPIC_ID, Batch, Generation, Week
from db.session_keys import lane_hash
from db.statements import queries
from publisher.protocol.cursor import Cursor
from spark_job.assembly import pgcopy

_LEDGER = queries("spark_job", "ledger")
_LOAD = queries("benchmarks.history", "load")
_QUESTIONS = queries("benchmarks.history", "questions")
_SHIFTS = queries("benchmarks.history", "shifts")

_BATCHES_A_TABLE = 10_000
"""Batches of a table partition, as `outbox.ensure_partitions` makes them."""

Connection = psycopg.Connection[Any]
Advance = Callable[[int], None]
"""Called with the number of sessions that were written since the last call."""


def load(dsn: str, plan: Week, workers: int, advance: Advance) -> None:
    """Fill an outbox that has its schema and nothing else; `workers` table partitions at a time."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SELECT outbox.ensure_partitions(1, %s)", (len(plan.batches) + _BATCHES_A_TABLE,))
        tables = [
            [*batches]
            for _, batches in groupby(plan.batches, lambda batch: batch.batch_id // _BATCHES_A_TABLE)
        ]
        sent: dict[int, list[rows.Sent]] = {}
        with ThreadPoolExecutor(workers) as pool:
            for of_table in pool.map(lambda batches: _copy_rows(dsn, plan, batches, advance), tables):
                sent |= of_table
        with connection.transaction():
            _generations(connection, plan)
            _ledger(connection, plan)
            _letters(connection, plan)
            _lanes(connection, plan, publishing.deliveries(plan, sent))
            connection.execute(_LOAD["insert_savepoint"])
            connection.execute(_LOAD["insert_replays"])
            topics = [rows.CLICKS, rows.FUNNEL, rows.SESSIONS, rows.EXITS, rows.ORDERS]
            connection.execute(_LOAD["set_identity"], {"topics": topics})
        connection.execute("VACUUM (ANALYZE)")


def bring_up_to_now(connection: Connection) -> timedelta:
    """Move all times so that the newest batch is of now: "the last hour" is one again. Returns by how much.

    The event times inside the rows stay. Each table is written anew, so that none carries dead rows along.
    """
    ((behind,),) = connection.execute(_QUESTIONS["newest_batch_age"]).fetchall()
    if behind > timedelta(minutes=1):
        for table, shift in _SHIFTS.items():
            connection.execute(shift, {"by": behind})
            connection.execute(sql.SQL("VACUUM (FULL, ANALYZE) {}").format(sql.Identifier("outbox", table)))
    return timedelta(0) if behind is None else behind


def _copy_rows(dsn: str, plan: Week, batches: list[Batch], advance: Advance) -> dict[int, list[rows.Sent]]:
    """Fill one table partition; return what is to be delivered, by batch and lane."""
    sent: dict[int, list[rows.Sent]] = {}
    table = sql.Identifier("outbox", f"session_output_p{batches[0].batch_id // _BATCHES_A_TABLE:08}")
    with psycopg.connect(dsn) as connection:
        # Emptied and filled in one transaction: with wal_level = minimal nothing of it is logged.
        connection.execute(sql.SQL("TRUNCATE {}").format(table))
        with (
            connection.cursor() as cursor,
            cursor.copy(_LEDGER["copy_rows"]) as copy,
        ):
            copy.write(pgcopy.HEADER)
            for batch in batches:
                _, _, lanes = plan.epoch_of(batch.batch_id)
                of_batch = sent[batch.batch_id] = [rows.Sent() for _ in range(lanes)]
                put_aside = {slot for slot, (number, _) in plan.parked.items() if number == batch.batch_id}
                encoded = [*rows.copied(batch, lanes, put_aside, of_batch)]
                copy.write(b"".join(encoded))
                advance(len(encoded))
            copy.write(pgcopy.TRAILER)
    return sent


def _run_id(generation: int) -> UUID:
    return UUID(int=generation)


def _generations(connection: Connection, plan: Week) -> None:
    for generation, following in zip(plan.generations, [*plan.generations[1:], None], strict=True):
        first = plan.batches[generation.first_batch - 1]
        ended_at = None if following is None else plan.batches[following.first_batch - 1].created_at
        values = {
            "generation": generation.number,
            "reason": generation.reason,
            "restored": generation.restored,
            "run_id": _run_id(generation.number),
            "start": Jsonb(week.offsets_at(first.first)),
            "open_state": Jsonb(week.open_at(first.first)),
            "topics": Jsonb({INPUT_TOPIC_ID: INPUT_TOPIC}),
            "from_generation": generation.number - 1 or None,
            "from_batch": _newest_stream(plan, generation),
            "started_at": first.created_at - timedelta(seconds=20),
            "ended_at": ended_at,
        }
        connection.execute(_LOAD["insert_generation"], values)
        connection.execute(_LOAD["insert_run"], values)


def _newest_stream(plan: Week, generation: Generation) -> int | None:
    """The stream batch that a generation continues."""
    before = reversed(plan.batches[: generation.first_batch - 1])
    return next((batch.batch_id for batch in before if batch.kind == "stream"), None)


def _ledger(connection: Connection, plan: Week) -> None:
    with connection.cursor() as cursor, cursor.copy(_LOAD["copy_batch"]) as copy:
        for batch in plan.batches:
            sessions = len(batch.sessions())
            position: list[Jsonb | None] = [None] * 3
            if batch.kind == "stream":
                places = (week.offsets_at(batch.first), week.offsets_at(batch.last), week.open_at(batch.last))
                position = [Jsonb(place) for place in places]
            copy.write_row(
                [
                    *(batch.batch_id, batch.kind, batch.generation, batch.spark_batch, batch.commit_id),
                    *(_run_id(batch.generation), *position),
                    *((batch.last - batch.first) * week.SLOT_EVENTS, sessions),
                    *(sessions * week.OUTPUT_EVENTS, sessions * rows.SESSION_BYTES),
                    *(len(batch.dead_letters()), "history", batch.created_at),
                ]
            )


def _letters(connection: Connection, plan: Week) -> None:
    resolved = {slot: batch for batch in plan.batches for slot in batch.letters}
    with (
        connection.cursor() as cursor,
        cursor.copy(_LOAD["copy_dead_letter"]) as copy,
    ):
        for batch in plan.batches:
            for slot in batch.dead_letters():
                copy.write_row(_letter(batch, slot, resolved.get(slot)))


_EVENTS_KEPT = {
    "malformed": 1,
    "no_start": 1,
    "restarted": 12,
    "timed_out": 12,
    "transform_failed": 102,
    "too_large": 102,
}


def _letter(batch: Batch, slot: int, retry: Batch | None) -> list[Any]:
    reason, first = week.reason_of(slot), week.start_of(slot)
    count = _EVENTS_KEPT[reason]
    ms = int(batch.created_at.timestamp() * 1000) - 2_000
    is_session = count == week.SLOT_EVENTS
    closing = first + count - 1 if count == 1 or is_session else first + week.SLOT_EVENTS - 1
    state, changed_at = "open", batch.created_at
    if retry is not None:
        state, changed_at = "resolved", retry.created_at
    elif slot % 997 == 0:
        state, changed_at = "discarded", batch.created_at + timedelta(hours=1)
    return [
        *(INPUT_TOPIC_ID, INPUT_TOPIC, week.partition_of(slot), first, first + count - 1, closing, reason),
        *(batch.generation, batch.batch_id, None if reason == "malformed" else week.key_of(slot).decode()),
        *(f"synthetic: {reason}", count, [*range(first, first + count)]),
        *([ms + 15 * n for n in range(count)], [b'{"page":"%d"}' % n for n in range(count)]),
        *(state, None if retry is None else retry.batch_id, changed_at, batch.created_at),
    ]


def _lanes(connection: Connection, plan: Week, made: list[publishing.Delivery]) -> None:
    for epoch, from_batch, lanes in plan.lane_epochs:
        created_at = plan.batches[from_batch - 1].created_at
        values = {"epoch": epoch, "from_batch": from_batch, "lanes": lanes, "created_at": created_at}
        connection.execute(_LOAD["insert_lane_epoch"], values)
    # (epoch, lane) -> newest delivery, sessions
    mirrors: dict[tuple[int, int], tuple[publishing.Delivery, int]] = {}
    for one in made:
        _, sessions = mirrors.get((one.epoch, one.lane), (one, 0))
        mirrors[one.epoch, one.lane] = one, sessions + one.sessions
    with connection.cursor() as cursor:
        with cursor.copy(_LOAD["copy_lane"]) as copy:
            for (epoch, lane), (newest, sessions) in sorted(mirrors.items()):
                commit_id = plan.batches[newest.to.batch_id - 1].commit_id
                copy.write_row(
                    [
                        *(epoch, lane, newest.seq, *_pair(newest.to), commit_id),
                        *(sessions, sessions * week.OUTPUT_EVENTS, newest.committed_at),
                    ]
                )
        with cursor.copy(_LOAD["copy_delivery"]) as copy:
            for one in made:
                copy.write_row(
                    [
                        *(one.epoch, one.lane, one.seq, *_pair(one.after), *_pair(one.to)),
                        *(one.sessions, one.events, one.offsets, one.committed_at),
                    ]
                )
        with cursor.copy(_LOAD["copy_parked"]) as copy:
            for row in _parked(plan):
                copy.write_row(row)


def _pair(cursor: Cursor) -> tuple[int, str | None]:
    return cursor.batch_id, cursor.session_key


def _parked(plan: Week) -> Iterator[list[Any]]:
    for n, (slot, (batch_id, state)) in enumerate(sorted(plan.parked.items())):
        epoch, _, lanes = plan.epoch_of(batch_id)
        key = week.key_of(slot)
        at = plan.batches[batch_id - 1].created_at
        requeued = next((batch.batch_id for batch in plan.batches if slot in batch.parked), None)
        changed_at = at if state == "parked" else at + timedelta(hours=2)
        yield [
            *(key.decode(), batch_id, epoch, lane_hash(key) % lanes, 1, "invalid" if n % 2 else "too_large"),
            *("synthetic", "requeued" if requeued else state, requeued, changed_at, at),
        ]
