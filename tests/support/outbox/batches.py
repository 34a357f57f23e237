"""Fills an outbox as the job would: ledger rows and session outputs, by plain SQL."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import psycopg
from psycopg.types.json import Jsonb

from tests.support.queries import query

TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"
OFFSETS = Jsonb({TOPIC_ID: {"0": 0}})


@dataclass(frozen=True)
class Session:
    """One session's outputs. The optional lists are parallel to `values`."""

    values: Sequence[bytes | None]
    end: int
    topics: Sequence[str] | None = None
    keys: Sequence[bytes | None] | None = None
    headers: Sequence[list[list[Any]] | None] | None = None
    partitions: Sequence[int | None] | None = None
    timestamps_ms: Sequence[int | None] | None = None


@dataclass
class Outbox:
    """Writes batches to the outbox at `dsn`; remembers what each event must look like in Kafka."""

    dsn: str
    topic: str
    lanes: int = 2
    written: list[tuple[bytes, bytes | None, str]] = field(default_factory=list)
    """(key, value, outbox-id) of every event that went into the outbox, in order."""

    def __post_init__(self) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(
                # It names no partition: each begins with its first batch.
                "INSERT INTO outbox.generation (generation, start_offsets, topics, reason, policy, assembly, run_id)"
                " VALUES (1, '{}', %s, 'first', 'skip', '{}', %s)",
                (Jsonb({TOPIC_ID: "session-events"}), uuid4()),
            )
            self.add_epoch(1, 1, self.lanes)

    def add_epoch(self, epoch: int, from_batch: int, lanes: int) -> None:
        """Change the lane count from a batch on."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(
                "INSERT INTO outbox.lane_epoch (epoch, from_batch, lanes) VALUES (%s, %s, %s)",
                (epoch, from_batch, lanes),
            )
        self.lanes = lanes

    def lane_of(self, key: str) -> int:
        """The lane that rows of this key get here."""
        return sum(key.encode()) % self.lanes

    def batch(self, sessions: dict[str, Sequence[Session]], *, revision: int = 0) -> int:
        """Commit one batch with one row a key, in one transaction as the job does; return its id."""
        with psycopg.connect(self.dsn) as connection:
            # As the job does: what is numbered under the writer lock gets the lanes of that moment.
            connection.execute("SELECT outbox.lock_writer()")
            epochs = connection.execute("SELECT lanes FROM outbox.lane_epoch ORDER BY epoch").fetchall()
            self.lanes = epochs[-1][0]
            found = connection.execute("SELECT coalesce(max(batch_id), 0) + 1 FROM outbox.batch").fetchone()
            assert found is not None
            batch_id: int = found[0]
            for key, closed in sorted(sessions.items(), key=lambda item: item[0].encode()):
                self._row(connection, batch_id, key, closed, revision)
            closed_here = [session for closed in sessions.values() for session in closed]
            values = [value for session in closed_here for value in session.values]
            connection.execute(
                "INSERT INTO outbox.batch (batch_id, kind, generation, spark_batch, run_id, start_offsets, end_offsets, open_state,"
                " sessions, output_events, output_bytes, transform_fingerprint)"
                " SELECT %(id)s, 'stream', 1, coalesce(max(spark_batch) + 1, 0), %(run)s, %(o)s, %(o)s, '{}',"
                " %(sessions)s, %(events)s, %(bytes)s, 'test' FROM outbox.batch",
                {
                    "id": batch_id,
                    "run": uuid4(),
                    "o": OFFSETS,
                    "sessions": len(closed_here),
                    "events": len(values),
                    "bytes": sum(len(value) for value in values if value is not None),
                },
            )
            woken = ",".join(map(str, sorted({self.lane_of(key) for key in sessions})))
            connection.execute("SELECT outbox.wake('outbox_batch', %s)", (f"{batch_id} {woken}",))
        return batch_id

    def _row(
        self,
        connection: psycopg.Connection[Any],
        batch_id: int,
        key: str,
        closed: Sequence[Session],
        revision: int,
    ) -> None:
        values = [value for session in closed for value in session.values]
        for session in closed:
            for index, value in enumerate(session.values):
                own = session.keys[index] if session.keys is not None else None
                self.written.append((own or key.encode(), value, f"{TOPIC_ID}/0/{session.end}/{index}"))
        headers = _optional(closed, "headers")
        connection.execute(
            "INSERT INTO outbox.session_output (session_key, batch_id, lane, revision, session_topic_ids, session_partitions,"
            ' session_starts, session_ends, session_started_ms, session_ended_ms, session_events, session_outputs, topics, "values",'
            " keys, headers, partitions, timestamps_ms) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s,"
            " %s::jsonb[], %s, %s)",
            (
                key,
                batch_id,
                self.lane_of(key),
                revision,
                [TOPIC_ID] * len(closed),
                [0] * len(closed),
                [session.end - 1 for session in closed],
                [session.end for session in closed],
                [0] * len(closed),
                [1] * len(closed),
                [2] * len(closed),
                [len(session.values) for session in closed],
                [t for s in closed for t in (s.topics or [self.topic] * len(s.values))],
                values,
                _optional(closed, "keys"),
                None if headers is None else [None if h is None else json.dumps(h) for h in headers],
                _optional(closed, "partitions"),
                _optional(closed, "timestamps_ms"),
            ),
        )


def _optional(closed: Sequence[Session], name: str) -> list[Any] | None:
    """The parallel array of a row, None where no session of it has that list."""
    if all(getattr(session, name) is None for session in closed):
        return None
    return [item for s in closed for item in (getattr(s, name) or [None] * len(s.values))]


def simple(batch: int, keys: int, events: int = 3, prefix: str = "k") -> dict[str, Sequence[Session]]:
    """`keys` sessions of `events` small events each, different in every batch, keys the same in every batch."""
    return {
        f"{prefix}{key:04d}": [
            Session(
                values=[b'{"batch":%d,"key":%d,"event":%d}' % (batch, key, event) for event in range(events)],
                end=batch * 100_000 + key * 100 + 99,
            )
        ]
        for key in range(keys)
    }


STEP = 100_000
"""Offsets that each batch reads: batch N those from N * STEP on, as `simple` numbers its sessions' ends."""


def read_offsets(dsn: str) -> None:
    """Let every batch of the ledger have read its own step of partition 0, as the job's batches do."""
    query(
        dsn,
        "UPDATE outbox.batch SET start_offsets = jsonb_build_object(%s::text, jsonb_build_object('0', batch_id * %s::bigint)),"
        " end_offsets = jsonb_build_object(%s::text, jsonb_build_object('0', (batch_id + 1) * %s::bigint)) WHERE kind = 'stream'",
        TOPIC_ID,
        STEP,
        TOPIC_ID,
        STEP,
    )
