"""Read the outbox's outputs of some sessions, by their place in the input, in transactions that cannot write."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from psycopg.rows import dict_row

from db import windows
from db.connection import Connection, connect, snapshot
from db.migrate import require_current
from db.statements import queries
from service.settings import Settings
from spark_job.api import Session, utc
from spark_job.input.offsets import TopicPartition
from spark_job.ledger import position
from spark_job.testing.outputs import StoredOutput, stored_headers

_TRIAL = queries("spark_job", "trial")

Absence = Literal["not_read", "dead_letter", "erased", "absent"]


@dataclass(frozen=True)
class StoredSession:
    """A session's newest outputs in the outbox."""

    batch_id: int
    revision: int
    start: int
    outputs: tuple[StoredOutput, ...]


@dataclass(frozen=True)
class NotStored:
    """Why the outbox has no outputs of a session."""

    state: Absence
    why: str


Place = tuple[str, int, int]
"""(topic id, partition, offset of the session's end)"""


def look_up(
    settings: Settings, sessions: Sequence[Session], closings: Sequence[int], topic_ids: Mapping[str, str]
) -> list[StoredSession | NotStored]:
    """Return each session's outputs in the outbox, or why there are none. Raises OutboxError, psycopg.Error.

    `closings`: offset of the record that showed each session's end; `topic_ids`: {topic: topic id}.
    """
    with connect(settings.postgres, "spark-job try", autocommit=True) as connection:
        require_current(connection)
        places = [(topic_ids[each.end.topic], each.end.partition, each.end.offset) for each in sessions]
        found = _rows(connection, sessions, places)
        missing = [number for number, place in enumerate(places) if place not in found]
        why = dict(zip(missing, _reasons(connection, sessions, closings, places, missing), strict=True))
        return [why[number] if number in why else found[place] for number, place in enumerate(places)]


def _rows(
    connection: Connection, sessions: Sequence[Session], places: Sequence[Place]
) -> dict[Place, StoredSession]:
    found: dict[Place, StoredSession] = {}
    wanted = {
        "keys": sorted({each.key for each in sessions}),
        "ends": sorted({offset for *_, offset in places}),
    }
    for window in reversed(windows.kept(connection)):
        if all(place in found for place in places):
            break
        with snapshot(connection), connection.cursor(row_factory=dict_row) as cursor:
            for row in cursor.execute(_TRIAL["rows"], wanted | window.bounds, prepare=False):
                for place, session in _sessions(row):
                    found.setdefault(place, session)
    return found


def _sessions(row: Mapping[str, Any]) -> Iterator[tuple[Place, StoredSession]]:
    """Yield the sessions of a row, each with its own outputs."""
    columns = [row[name] for name in ("topics", "keys", "values", "headers", "partitions", "timestamps_ms")]
    first = 0
    for topic_id, partition, start, end, outputs in zip(
        *(row[f"session_{name}"] for name in ("topic_ids", "partitions", "starts", "ends", "outputs")),
        strict=True,
    ):
        own = [[None] * outputs if each is None else each[first : first + outputs] for each in columns]
        first += outputs
        key = row["session_key"]
        yield (
            (topic_id, partition, end),
            StoredSession(
                row["batch_id"],
                row["revision"],
                start,
                tuple(_output(key, *each) for each in zip(*own, strict=True)),
            ),
        )


def _output(
    session_key: str,
    topic: str,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[Sequence[Any]] | None,
    partition: int | None,
    timestamp_ms: int | None,
) -> StoredOutput:
    return StoredOutput(
        topic,
        session_key.encode() if key is None else key,
        value,
        stored_headers(headers),
        partition,
        None if timestamp_ms is None else utc(timestamp_ms),
        session_key,
    )


def _reasons(
    connection: Connection,
    sessions: Sequence[Session],
    closings: Sequence[int],
    places: Sequence[Place],
    which: Sequence[int],
) -> Iterator[NotStored]:
    """Yield, in the sessions' order, why the outbox has no outputs of each."""
    if not which:
        return
    with snapshot(connection), connection.cursor(row_factory=dict_row) as cursor:
        at = position.read(connection)
        wanted = {
            "keys": [sessions[number].key for number in which],
            "topic_ids": [places[number][0] for number in which],
            "partitions": [places[number][1] for number in which],
            "firsts": [sessions[number].start.offset for number in which],
            "ends": [places[number][2] for number in which],
        }
        letters = {row["place"]: row for row in cursor.execute(_TRIAL["letters"], wanted)}
        erased = {row["place"] for row in cursor.execute(_TRIAL["erased"], wanted)}
    for nth, number in enumerate(which):
        topic_id, partition, _ = places[number]
        read_to = 0 if at is None else at.end.at(TopicPartition(topic_id, partition))
        if nth in letters:
            letter = letters[nth]
            yield NotStored(
                "dead_letter",
                f"dead letter {letter['dead_letter_id']} ({letter['reason']}, {letter['state']})",
            )
        elif nth in erased:
            yield NotStored("erased", "it was erased")
        elif closings[number] >= read_to:
            yield NotStored("not_read", f"the job has read this partition up to offset {read_to} only")
        else:
            yield NotStored(
                "absent",
                "the job has read past it: removed by retention, before the outbox's start, or judged otherwise then",
            )
