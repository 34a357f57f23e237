"""Rows that the schema accepts, to be spoiled one column at a time."""

import uuid
from dataclasses import dataclass
from typing import Any, LiteralString

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

RUN = uuid.UUID(int=1)
NO_OFFSETS = dict.fromkeys(("spark_batch", "start_offsets", "end_offsets", "open_state"))
"""What changes in the valid row of a batch that is no batch of the stream."""

VALID: dict[str, dict[str, Any]] = {
    "generation": {
        "generation": 1,
        "start_offsets": Jsonb({"topic": {"0": 0}}),
        "topics": Jsonb({"topic": "session-events"}),
        "reason": "first",
        "policy": "skip",
        "assembly": Jsonb({}),
        "run_id": RUN,
    },
    "batch": {
        "batch_id": 1,
        "kind": "stream",
        "generation": 1,
        "spark_batch": 0,
        "run_id": RUN,
        "start_offsets": Jsonb({}),
        "end_offsets": Jsonb({}),
        "open_state": Jsonb({}),
        "transform_fingerprint": "fingerprint",
    },
    "session_output": {
        "session_key": "key",
        "batch_id": 1,
        "lane": 0,
        "revision": 0,
        "session_topic_ids": ["topic"],
        "session_partitions": [0],
        "session_starts": [10],
        "session_ends": [19],
        "session_started_ms": [1_000],
        "session_ended_ms": [2_500],
        "session_events": [10],
        "session_outputs": [2],
        "topics": ["out", "out"],
        "values": [b"{}", b"{}"],
    },
    "dead_letter": {
        "topic_id": "topic",
        "topic": "session-events",
        "partition": 0,
        "first_offset": 5,
        "last_offset": 6,
        "closing_offset": 7,
        "reason": "timed_out",
        "generation": 1,
        "batch_id": 1,
        "session_key": "key",
        "detail": "no end within 60 s",
        "event_count": 2,
        "event_offsets": [5, 6],
        "event_times_ms": [1, 2],
        "event_values": [b"{}", None],
    },
    "lane_epoch": {"epoch": 1, "from_batch": 1, "lanes": 8},
    "lane": {"epoch": 1, "lane": 0},
    "delivery": {"epoch": 1, "lane": 0, "seq": 1, "to_batch": 1, "sessions": 1, "events": 2},
    "parked": {
        "session_key": "key",
        "batch_id": 1,
        "epoch": 1,
        "lane": 0,
        "lease_token": 1,
        "reason": "too_large",
        "detail": "MSG_SIZE_TOO_LARGE",
    },
    "parked_topic": {"topic": "out"},
    "run": {
        "run_id": RUN,
        "generation": 1,
        "restored": "fresh",
        "resumes_at": Jsonb({"topic": {"0": 0}}),
        "explanation": "fresh start",
        "attempt": 1,
        "transform_fingerprint": "fingerprint",
        "host": "host",
        "pid": 1,
        "system_identifier": 1,
        "timeline": 1,
    },
    "savepoint": {
        "name": "before-deploy",
        "generation": 1,
        "batch_id": 1,
        "end_offsets": Jsonb({"topic": {"0": 0}}),
        "open_state": Jsonb({}),
        "lineage": Jsonb([]),
        "assembly": Jsonb({}),
        "topics": Jsonb({"topic": "session-events"}),
        "revision": 0,
    },
    "request": {"run_id": RUN, "kind": "stop"},
    "publisher_process": {
        "process_id": RUN,
        "host": "host",
        "pid": 1,
        "alive_until": "2030-01-01",
        "backend_pid": 1,
    },
    "replay": {
        "replay_id": 1,
        "from_batch": 1,
        "to_batch": 2,
        "target_cluster_id": "cluster",
        "target_servers": "host:9092",
        "rows_total": 2,
        "events_total": 40,
    },
    "replay_key": {"replay_id": 1, "session_key": "key"},
    "operation": {
        "os_user": "ann",
        "host": "host",
        "command": "publisher lanes set",
        "arguments": Jsonb({"lanes": 4}),
        "result": Jsonb({"epoch": 2}),
    },
}

PARENTS: dict[str, tuple[str, ...]] = {
    "generation": (),
    "batch": ("generation",),
    "session_output": ("generation", "batch"),
    "dead_letter": ("generation",),
    "lane_epoch": (),
    "lane": ("lane_epoch",),
    "delivery": ("lane_epoch", "lane"),
    "parked": ("lane_epoch", "lane"),
    "parked_topic": (),
    "run": ("generation",),
    "savepoint": ("generation",),
    "request": (),
    "publisher_process": (),
    "replay": (),
    "replay_key": ("replay",),
    "operation": (),
}


@dataclass(frozen=True)
class OutboxRows:
    """A migrated database and a connection of its owner in autocommit mode."""

    dsn: str
    connection: psycopg.Connection[Any]

    def insert(self, table: str, **changes: Any) -> None:
        """Insert the valid row of `table` with some columns changed."""
        row = VALID[table] | changes
        self.connection.execute(
            sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(
                sql.Identifier("outbox", table),
                sql.SQL(", ").join(map(sql.Identifier, row)),
                sql.SQL(", ").join(sql.Placeholder() * len(row)),
            ),
            list(row.values()),
        )

    def insert_parents(self, table: str) -> None:
        """Insert the valid rows that the valid row of `table` needs."""
        for parent in PARENTS[table]:
            self.insert(parent)

    def rows(self, query: LiteralString, *parameters: Any) -> list[tuple[Any, ...]]:
        """Return what `query` finds."""
        return self.connection.execute(query, parameters).fetchall()

    def value(self, query: LiteralString, *parameters: Any) -> Any:
        """Return the first column of the one row that `query` finds."""
        ((value,),) = self.rows(query, *parameters)
        return value
