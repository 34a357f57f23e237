"""`--to-file PATH.parquet`: rows with the columns of the archive, so that one query can read both.

A row has only the outputs that a replay would send, under their target topics; everything else is as it is stored. The headers include
`outbox-id`, because the index in it cannot be derived from the row once outputs are left out.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import compress, islice
from typing import Any, BinaryIO

import orjson

from contract import header_values
from publisher.archive.parquet import FileWriter, RowGroup
from publisher.protocol.outgoing import Outgoing
from publisher.protocol.records import Header
from publisher.protocol.stored_row import StoredRow


@contextmanager
def parquet_file(file: BinaryIO, outgoing: Outgoing) -> Iterator[Callable[[StoredRow], int]]:
    """A FileFormat (file.py). Raises ArchiveDamagedError if a value does not fit its column, OSError."""
    group = RowGroup()
    with FileWriter(file) as writer:

        def write(row: StoredRow) -> int:
            nonlocal group
            sent = sent_part(row, outgoing)
            if sent.topics:
                headers = sum(len(each or "") for each in sent.headers or ())
                group.add(sent, sent.output_bytes() + headers)
            if group.is_full:
                writer.write(group.table())
                group = RowGroup()
            return len(sent.topics)

        yield write
        writer.write(group.table())
        writer.close()


def sent_part(row: StoredRow, outgoing: Outgoing) -> StoredRow:
    """Return the row with only the outputs that a replay would send. Raises ValueError if the row cannot be read, or the ledger lacks its
    batch."""
    if row.committed_at is None:
        raise ValueError("the ledger does not have the batch: `publisher audit` shows what is missing")
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
    """Return headers in their stored form, [[name, value], …]; a value is a text, {"base64": …} or null."""
    return orjson.dumps(
        [
            [name, header_values.stored(value) if isinstance(value, bytes) else value]
            for name, value in headers
        ]
    ).decode()
