"""One micro-batch on the driver: from the rows that Spark collected to the rows that the outbox stores. Pure; no server is asked."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import orjson
import pyarrow as pa

from spark_job import pgcopy, rows
from spark_job.offsets import Offsets, TopicPartition
from spark_job.outputs import EncodedOutputs


class SessionRow(NamedTuple):
    """A closed session with its encoded outputs."""

    key: bytes
    where: TopicPartition
    start: int
    end: int
    started_ms: int
    ended_ms: int
    events: int
    lane_hash: int
    outputs: EncodedOutputs


class Letter(NamedTuple):
    """A dead letter; its kept events are encoded array elements."""

    where: TopicPartition
    first_offset: int
    last_offset: int
    closing_offset: int
    reason: str
    key: str | None
    detail: str
    event_count: int
    kept: int
    values: bytes
    offsets: bytes
    times_ms: bytes
    types: bytes | None  # None: the values tell them


class Summary(NamedTuple):
    """What is still open in a bucket that had new data."""

    bucket: int
    open_sessions: int
    open_events: int
    open_bytes: int
    state_bytes: int
    oldest: Offsets


@dataclass(frozen=True)
class BatchResult:
    """All that one Spark batch found."""

    sessions: list[SessionRow]
    letters: list[Letter]
    summaries: list[Summary]
    counts: Mapping[str, int]
    seconds: Mapping[str, float]


class OutputRow(NamedTuple):
    """One row of session_output, without batch, lane and revision."""

    key: bytes
    lane_hash: int
    sessions: int
    outputs: int
    size: int  # bytes of the output events' values: what output_bytes of the ledger counts
    fields: bytes  # the encoded fields after (session_key, batch_id, lane, revision)

    def copy(self, batch_id: int, lanes: int, revision: int) -> bytes:
        """Return the row in COPY's binary format; `lanes` is the lane count of the current epoch."""
        head = [
            pgcopy.data(self.key),
            pgcopy.int8(batch_id),
            pgcopy.int4(self.lane_hash % lanes),
            pgcopy.int4(revision),
        ]
        return pgcopy.count(18) + b"".join(head) + self.fields


def read(table: pa.Table, places: Mapping[int, TopicPartition]) -> BatchResult:
    """Read the rows of `rows.COLUMNS`; `places` maps source numbers to partitions."""
    sessions, letters, summaries = [], [], []
    counts: dict[str, int] = {}
    seconds: dict[str, float] = {}
    for row in table.to_pylist():
        if row["kind"] == rows.SESSION:
            sessions.append(_session(row, places))
        elif row["kind"] == rows.LETTER:
            letters.append(_letter(row, places))
        else:
            detail = orjson.loads(row["detail"])
            summaries.append(_summary(row["bucket"], detail, places))
            for name, value in detail["counts"].items():
                counts[name] = counts.get(name, 0) + value
            for name, value in detail["seconds"].items():
                seconds[name] = seconds.get(name, 0.0) + value
    letters.sort(key=lambda letter: (letter.where, letter.closing_offset, letter.first_offset, letter.reason))
    return BatchResult(sessions, letters, summaries, counts, seconds)


def above_high_water(sessions: Sequence[SessionRow], high_water: Offsets) -> list[SessionRow]:
    """Drop the sessions that close below the high water: an earlier generation has dealt with them (design §3.3 step 3)."""
    return [session for session in sessions if session.end >= high_water.at(session.where)]


def parts(sessions: Sequence[SessionRow], max_row_bytes: int) -> list[list[OutputRow]]:
    """Return the rows of each part, in key-byte order: one row for each key and part (design §3.3 step 4).

    A key's sessions stay in closing order; they take another part only where one row would exceed `max_row_bytes`. There is
    always a first part, even without rows.
    """
    result: list[list[OutputRow]] = [[]]
    ordered = sorted(sessions, key=lambda session: (session.key, session.where, session.end))
    for _, of_key in groupby(ordered, key=lambda session: session.key):
        for part, members in enumerate(_fitting(list(of_key), max_row_bytes)):
            if part == len(result):
                result.append([])
            result[part].append(_row(members))
    return result


def content_hash(output_rows: Sequence[OutputRow]) -> bytes:
    """Return the SHA-256 over the rows in their order."""
    digest = hashlib.sha256()
    for row in output_rows:
        digest.update(pgcopy.data(row.key))
        digest.update(row.fields)
    return digest.digest()


def _fitting(sessions: list[SessionRow], max_bytes: int) -> list[list[SessionRow]]:
    groups: list[list[SessionRow]] = [[]]
    size = 0
    for session in sessions:
        if groups[-1] and size + session.outputs.size > max_bytes:
            groups.append([])
            size = 0
        groups[-1].append(session)
        size += session.outputs.size
    return groups


def _row(sessions: list[SessionRow]) -> OutputRow:
    n = len(sessions)
    outputs = sum(session.outputs.events for session in sessions)
    fields = [
        pgcopy.array(pgcopy.TEXT, n, b"".join([pgcopy.data(s.where.topic_id.encode()) for s in sessions])),
        pgcopy.array(pgcopy.INT4, n, pgcopy.int4s(s.where.partition for s in sessions)),
        pgcopy.array(pgcopy.INT8, n, pgcopy.int8s(s.start for s in sessions)),
        pgcopy.array(pgcopy.INT8, n, pgcopy.int8s(s.end for s in sessions)),
        pgcopy.array(pgcopy.INT8, n, pgcopy.int8s(s.started_ms for s in sessions)),
        pgcopy.array(pgcopy.INT8, n, pgcopy.int8s(s.ended_ms for s in sessions)),
        pgcopy.array(pgcopy.INT4, n, pgcopy.int4s(s.events for s in sessions)),
        pgcopy.array(pgcopy.INT4, n, pgcopy.int4s(s.outputs.events for s in sessions)),
        pgcopy.array(pgcopy.TEXT, outputs, b"".join([s.outputs.topics for s in sessions])),
        pgcopy.array(pgcopy.BYTEA, outputs, b"".join([s.outputs.values for s in sessions])),
        _optional(pgcopy.BYTEA, sessions, [s.outputs.keys for s in sessions]),
        _optional(pgcopy.JSONB, sessions, [s.outputs.headers for s in sessions]),
        _optional(pgcopy.INT4, sessions, [s.outputs.partitions for s in sessions]),
        _optional(pgcopy.INT8, sessions, [s.outputs.timestamps for s in sessions]),
    ]
    size = sum(session.outputs.value_bytes for session in sessions)
    return OutputRow(sessions[0].key, sessions[0].lane_hash, n, outputs, size, b"".join(fields))


def _optional(oid: int, sessions: list[SessionRow], elements: list[bytes | None]) -> bytes:
    """An array that is NULL where no session set anything; sessions that did not get NULL elements."""
    if all(element is None for element in elements):
        return pgcopy.NULL
    filled = [
        pgcopy.NULL * session.outputs.events if element is None else element
        for session, element in zip(sessions, elements, strict=True)
    ]
    return pgcopy.array(oid, sum(session.outputs.events for session in sessions), b"".join(filled))


def _session(row: Mapping[str, Any], places: Mapping[int, TopicPartition]) -> SessionRow:
    return SessionRow(
        row["session_key"].encode(),
        places[row["source"]],
        row["first_offset"],
        row["closing_offset"],
        row["started_ms"],
        row["ended_ms"],
        row["events"],
        row["lane_hash"],
        EncodedOutputs(
            row["outputs"],
            row["topics"],
            row["values"],
            row["keys"],
            row["headers"],
            row["partitions"],
            row["timestamps"],
        ),
    )


def _letter(row: Mapping[str, Any], places: Mapping[int, TopicPartition]) -> Letter:
    return Letter(
        places[row["source"]],
        row["first_offset"],
        row["last_offset"],
        row["closing_offset"],
        row["reason"],
        row["session_key"],
        row["detail"],
        row["events"],
        row["kept"],
        row["values"],
        row["partitions"],
        row["timestamps"],
        row["headers"],
    )


def _summary(bucket: int, detail: Mapping[str, Any], places: Mapping[int, TopicPartition]) -> Summary:
    oldest = Offsets({places[source]: offset for source, offset in detail["oldest"]})
    return Summary(
        bucket,
        detail["open_sessions"],
        detail["open_events"],
        detail["open_bytes"],
        detail["state_bytes"],
        oldest,
    )
