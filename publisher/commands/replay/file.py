"""`publisher replay start --to-file`: writes the outputs that a replay would send, as JSON lines or as Parquet.

They are written to `PATH.part`, which gets the name PATH once everything is on the disk. So the file is complete or does not exist, and
after a kill the command can be run again.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import orjson
import psycopg

from db import windows
from db.connection import snapshot
from db.statements import queries
from publisher.archive.catalogue import read_catalogue
from publisher.archive.opening import extra_for, open_archive
from publisher.protocol.outgoing import Outgoing
from publisher.protocol.records import ANY_PARTITION, SENT_NOW, ExtraHeaders, OutputRecord
from publisher.protocol.stored_row import StoredRow
from publisher.replay import archived
from publisher.replay.starting import ReplayPlan
from publisher.retention.retention_lock import hold_off_retention
from service.errors import ContinuityError
from service.printable import bytes_json
from service.private_file import private, writing
from service.settings import Settings

Write = Callable[[StoredRow], int]
"""Writes the selected outputs of a row; returns their number. Raises ValueError if the row cannot be read."""
FileFormat = Callable[[BinaryIO, Outgoing], AbstractContextManager[Write]]
"""Begins a file. After the block the file is complete."""

_REPLAYS = queries("publisher", "replays")
_FETCH_ROWS = 500


def format_of(path: Path) -> FileFormat:
    """Return the format for a file of this name. Raises SettingsError for Parquet if its library is not installed."""
    if path.suffix.lower() != ".parquet":
        return _json_lines
    with extra_for(f"--to-file {str(path)!r}"):
        from publisher.commands.replay.parquet_file import parquet_file
    return parquet_file


def write_file(
    connection: psycopg.Connection[Any],
    settings: Settings,
    plan: ReplayPlan,
    path: Path,
    form: FileFormat,
    advance: Callable[[int], None],
) -> None:
    """Write the outputs of a plan, in the outbox's order. `advance` is called with the number of outputs of each row.

    Raises SettingsError if the file cannot be written, ContinuityError if rows have gone meanwhile or cannot be read, psycopg.Error.
    With the archive: also ArchiveDamagedError, UnavailableError.
    """
    filters = plan.request.filters
    outgoing = Outgoing(
        topics=None if filters.topics is None else frozenset(filters.topics),
        targets=plan.request.targets,
        headers=ExtraHeaders.of(settings.publisher),
    )
    part = path.with_name(f"{path.name}.part")
    hold_off_retention(connection)
    written = 0
    with writing(path, "--to-file"):
        with open(part, "wb", opener=private) as file:
            with form(file, outgoing) as write:
                for row in _rows(connection, settings, plan):
                    events = _written(write, row)
                    written += events
                    advance(events)
            file.flush()
            os.fsync(file.fileno())
        if written != plan.count.events:
            raise ContinuityError(
                f"{written:,} outputs were written to {part}, but {plan.count.events:,} were counted: rows were dropped or erased meanwhile"
                ". Start it again for what is left"
            )
        part.replace(path)


def _rows(connection: psycopg.Connection[Any], settings: Settings, plan: ReplayPlan) -> Iterator[StoredRow]:
    """Yield the rows of the plan. The caller keeps retention and erasures away, so an archive does not change."""
    filters = plan.request.filters
    if plan.request.from_archive:
        archive = open_archive(connection, settings.retention, writing=False)
        partitions = read_catalogue(connection, plan.batches.first, plan.batches.last)
        yield from archived.rows_of_plan(archive, partitions, plan.batches, filters)
        return
    keys = None if filters.keys is None else list(filters.keys)
    for window in windows.cut(plan.batches.first, plan.batches.last):
        with snapshot(connection), connection.cursor(name="replay_rows", binary=True) as cursor:
            cursor.itersize = _FETCH_ROWS
            cursor.execute(_REPLAYS["rows_between"], window.bounds | {"keys": keys})
            yield from map(StoredRow._make, cursor)


def _written(write: Write, row: StoredRow) -> int:
    try:
        return write(row)
    except ValueError as error:
        raise ContinuityError(
            f"the row of session key {row.session_key!r} in batch {row.batch_id} cannot be read: {error}"
        ) from error


@contextmanager
def _json_lines(file: BinaryIO, outgoing: Outgoing) -> Iterator[Write]:
    def write(row: StoredRow) -> int:
        events = 0
        for record in outgoing.records(row.row()):
            file.write(orjson.dumps(_line(row, record), option=orjson.OPT_APPEND_NEWLINE))
            events += 1
        return events

    yield write


def _line(row: StoredRow, record: OutputRecord) -> dict[str, Any]:
    return {
        "topic": record.topic,
        "partition": None if record.partition == ANY_PARTITION else record.partition,
        "timestamp_ms": None if record.timestamp_ms == SENT_NOW else record.timestamp_ms,
        "key": bytes_json(record.key) if record.key is not None else None,
        "value": None if record.value is None else bytes_json(record.value),
        "headers": [
            [name, None if value is None else bytes_json(value.encode() if isinstance(value, str) else value)]
            for name, value in record.headers
        ],
        "batch_id": row.batch_id,
        "session_key": row.session_key,
    }
