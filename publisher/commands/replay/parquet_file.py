"""`--to-file PATH.parquet`: rows with the columns of the archive, so that one query reads both.

What a row has beside its outputs is as it is stored. Of the outputs it has those that a replay would send, under the topics that they
would go to, with all headers: `outbox-id` is among them, for where outputs are left out, it can no longer be found by counting.
"""

import base64
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import compress, islice
from typing import Any, BinaryIO

import orjson

from publisher.archive.parquet import GROUP_BYTES, GROUP_ROWS, FileWriter, table_of
from publisher.protocol.outgoing import Outgoing
from publisher.protocol.records import Header
from publisher.protocol.stored_row import StoredRow


@contextmanager
def parquet_file(file: BinaryIO, outgoing: Outgoing) -> Iterator[Callable[[StoredRow], int]]:
    """See FileFormat. Raises ArchiveDamagedError where a value does not fit its column, OSError."""
    group: list[StoredRow] = []
    size = 0
    with FileWriter(file) as writer:

        def write(row: StoredRow) -> int:
            nonlocal size
            sent = sent_part(row, outgoing)
            if sent.topics:
                group.append(sent)
                size += sent.output_bytes() + sum(len(headers or "") for headers in sent.headers or ())
            if size >= GROUP_BYTES or len(group) >= GROUP_ROWS:
                writer.write(table_of(group))
                group.clear()
                size = 0
            return len(sent.topics)

        yield write
        writer.write(table_of(group))
        writer.close()


def sent_part(row: StoredRow, outgoing: Outgoing) -> StoredRow:
    """Return a row with what goes out of it. Raises ValueError where the row cannot be read, or has no time of its commit."""
    if row.committed_at is None:
        raise ValueError("the ledger does not have the batch: `publisher audit` says more")
    records = list(outgoing.records(row.row()))
    selected = [outgoing.topics is None or topic in outgoing.topics for topic in row.topics]
    rest = iter(selected)
    return row._replace(
        session_outputs=[sum(islice(rest, outputs)) for outputs in row.session_outputs],
        topics=[record.topic for record in records],
        values=[record.value for record in records],
        keys=_kept(row.keys, selected),
        headers=[_stored(record.headers) for record in records],
        partitions=_kept(row.partitions, selected),
        timestamps_ms=_kept(row.timestamps_ms, selected),
    )


def _kept(values: list[Any] | None, selected: Sequence[bool]) -> list[Any] | None:
    return None if values is None else list(compress(values, selected))


def _stored(headers: Sequence[Header]) -> str:
    """Return headers as rows store them: [[name, text, {"base64": …} or null], …]."""
    return orjson.dumps([[name, _header_value(value)] for name, value in headers]).decode()


def _header_value(value: str | bytes | None) -> str | dict[str, str] | None:
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
