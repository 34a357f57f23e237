"""The result of one micro-batch on the driver: read what its tasks returned, and form the rows of `session_output`. Pure."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from service.errors import SettingsError
from spark_job.assembly import rows
from spark_job.assembly.refused_ids import RefusedIds
from spark_job.input.offsets import TopicPartition
from spark_job.ledger.open_partitions import OpenPartition
from spark_job.outputs import pgcopy, session_row

_ROWS_AT_ONCE = 10_000


class SessionRow(NamedTuple):
    """A closed session with its outputs, encoded as a row of its own."""

    key: bytes
    where: TopicPartition
    start: int
    end: int
    lane_hash: int
    outputs: int
    value_bytes: int
    fields: bytes
    """See outputs/session_row.py."""


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
    types: bytes | None  # None: the values contain them


class PartitionReport(NamedTuple):
    """What a task reports about a partition that had new records."""

    where: TopicPartition
    safe: int | None
    """Where the oldest open session begins; None if none is open."""
    sessions: int
    events: int
    n_bytes: int
    digest: str
    """Of the open sessions; empty if there are none."""
    tombstones: bytes
    refused: RefusedIds
    """The records that were refused because of their schema's id, from the oldest open session on."""
    rebuilt_events: int | None
    """Records that were read again to rebuild the open sessions; None if they were in the cache."""
    differs: bool
    """Whether the rebuilt sessions differ from the digest, which a person has accepted."""
    problem: str
    """Why the cache of open sessions could not be used or written; empty if it could."""

    def open(self, end: int) -> OpenPartition | None:
        """Return the open sessions as the ledger stores them; None if none is open. `end`: where the partition's slice ends."""
        if not self.digest:
            return None
        safe = end if self.safe is None else self.safe
        return OpenPartition(
            safe, self.sessions, self.events, self.n_bytes, self.digest, self.tombstones, refused=self.refused
        )


@dataclass(frozen=True)
class BatchResult:
    """The whole result of one Spark batch."""

    sessions: list[SessionRow]
    letters: list[Letter]
    partitions: list[PartitionReport]
    counts: Mapping[str, int]
    seconds: Mapping[str, float]

    @property
    def mean_event_bytes(self) -> float | None:
        """Mean bytes of an input event, in all columns that tasks read; None without an event."""
        events = self.counts.get("events", 0)
        return self.counts.get("bytes", 0) / events if events else None


class OutputRow(NamedTuple):
    """One row of session_output, without batch, lane and revision."""

    key: bytes
    lane_hash: int
    sessions: int
    outputs: int
    size: int  # bytes of the output events' values, as the ledger's output_bytes counts them
    fields: bytes  # the encoded fields after (session_key, batch_id, lane, revision)

    def copy(self, batch_id: int, lanes: int, revision: int) -> bytes:
        """Return the row in COPY's binary format; `lanes` is the lane count of the current epoch."""
        head = [
            pgcopy.data(self.key),
            pgcopy.int8(batch_id),
            pgcopy.int4(self.lane_hash % lanes),
            pgcopy.int4(revision),
        ]
        return pgcopy.count(session_row.N_FIELDS) + b"".join(head) + self.fields


def read(table: pa.Table, places: Mapping[int, TopicPartition]) -> BatchResult:
    """Read the rows of `rows.SCHEMA`. `places` maps source numbers to partitions.

    Raises SettingsError if two tasks report the same partition.
    """
    is_session = pc.equal(table.column("kind"), rows.SESSION)
    sessions = _sessions(table.filter(is_session), places)
    letters, partitions = [], []
    counts: dict[str, int] = {}
    seconds: dict[str, float] = {}
    for row in _others(table):
        if row["kind"] == rows.LETTER:
            letters.append(_letter(row, places))
        else:
            detail = orjson.loads(row["detail"])
            partitions.append(_partition(row, detail, places))
            for name, value in detail["counts"].items():
                counts[name] = counts.get(name, 0) + value
            for name, value in detail["seconds"].items():
                seconds[name] = seconds.get(name, 0.0) + value
    distinct = {each.where for each in partitions}
    if len(distinct) != len(partitions):
        cut = sorted(where for where in distinct if sum(each.where == where for each in partitions) > 1)
        raise SettingsError(
            f"the records of {', '.join(f'{where.topic_id}/{where.partition}' for where in cut)} (topic id/partition) were cut apart among "
            "Spark's tasks. Remove options that cut Spark's Kafka source into smaller pieces (minPartitions, maxRecordsPerPartition) from "
            "[job.spark_options] and from the cluster's plug-ins"
        )
    letters.sort(key=lambda letter: (letter.where, letter.closing_offset, letter.first_offset, letter.reason))
    return BatchResult(sessions, letters, partitions, counts, seconds)


def _others(table: pa.Table) -> Iterator[dict[str, Any]]:
    """Yield the rows that are not sessions, in bounded pieces. Otherwise very many letters would be in memory three times: in the table, in
    its filtered copy and as Python objects.
    """
    for part in table.to_batches(max_chunksize=_ROWS_AT_ONCE):
        yield from part.filter(pc.not_equal(part.column("kind"), rows.SESSION)).to_pylist()


def parts(sessions: Sequence[SessionRow], max_row_bytes: int) -> list[list[OutputRow]]:
    """Spread a batch's sessions over parts, each stored under its own batch id, so that a key has at most one row in each part and rows
    stay within `max_row_bytes`. Return each part's rows, in key-byte order.

    A key's sessions stay in closing order. They continue in the next part only if their row would exceed `max_row_bytes`. The first part
    exists even without rows.
    """
    result: list[list[OutputRow]] = [[]]
    ordered = sorted(sessions, key=lambda session: (session.key, session.where, session.end))
    for _, of_key in groupby(ordered, key=lambda session: session.key):
        for part, members in enumerate(_fitting(list(of_key), max_row_bytes)):
            if part == len(result):
                result.append([])
            result[part].append(_row(members))
    return result


def _fitting(sessions: list[SessionRow], max_bytes: int) -> list[list[SessionRow]]:
    groups: list[list[SessionRow]] = [[]]
    size = 0
    for session in sessions:
        if groups[-1] and size + len(session.fields) > max_bytes:
            groups.append([])
            size = 0
        groups[-1].append(session)
        size += len(session.fields)
    return groups


def _row(sessions: list[SessionRow]) -> OutputRow:
    outputs = [session.outputs for session in sessions]
    return OutputRow(
        sessions[0].key,
        sessions[0].lane_hash,
        len(sessions),
        sum(outputs),
        sum(session.value_bytes for session in sessions),
        session_row.joined([session.fields for session in sessions], outputs),
    )


def _sessions(table: pa.Table, places: Mapping[int, TopicPartition]) -> list[SessionRow]:
    """Read the sessions column by column, because a batch has thousands."""

    def column(name: str) -> list[Any]:
        return table.column(name).to_pylist()  # type: ignore[no-any-return]

    return list(
        map(
            SessionRow,
            table.column("session_key").cast(pa.binary()).to_pylist(),
            map(places.__getitem__, column("source")),
            column("first_offset"),
            column("last_offset"),
            column("lane_hash"),
            column("outputs"),
            column("value_bytes"),
            column("fields"),
        )
    )


def _letter(row: Mapping[str, Any], places: Mapping[int, TopicPartition]) -> Letter:
    return Letter(
        places[row["source"]],
        row["first_offset"],
        row["last_offset"],
        row["closing_offset"],
        sys.intern(row["reason"]),
        row["session_key"],
        row["detail"],
        row["events"],
        row["kept"],
        row["values"],
        row["offsets"],
        row["times"],
        row["types"],
    )


def _partition(
    row: dict[str, Any], detail: dict[str, Any], places: Mapping[int, TopicPartition]
) -> PartitionReport:
    return PartitionReport(
        where=places[row["source"]],
        safe=detail["safe"],
        sessions=detail["sessions"],
        events=detail["events"],
        n_bytes=detail["bytes"],
        digest=detail["digest"],
        tombstones=row["tombstones"] or b"",
        refused=RefusedIds.from_json(detail["refused"]),
        rebuilt_events=detail["rebuilt"] and detail["rebuilt"]["events"],
        differs=bool(detail["rebuilt"] and detail["rebuilt"]["differs"]),
        problem=detail["problem"],
    )
