"""Turn a test's records into the columns that the assembler reads."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import orjson
import pyarrow as pa

from spark_job.input.columns import RecordColumns

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_CREATE_TIME = 1  # confluent_kafka.TIMESTAMP_CREATE_TIME
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Record:
    """A record whose key, headers or time the settings use, and not only its value."""

    value: Mapping[str, object] | str | bytes | None
    """A mapping is written as JSON, text as UTF-8."""
    key: str | bytes | None = None
    headers: Sequence[tuple[str, str | bytes | None]] = ()
    timestamp: datetime = datetime(2026, 1, 1, tzinfo=UTC)


Records = Path | Iterable[Record | Mapping[str, object] | str | bytes]
"""Records of one partition, in offset order: a file of JSON lines, or a sequence of `Record`s and plain values."""


def table_of(records: Records, columns: RecordColumns) -> pa.Table:
    """Return the records as the assembler reads them; their offsets count from 0.

    Raises OSError for a file that cannot be read, TypeError for text or bytes, which are no records.
    """
    if isinstance(records, str | bytes):
        raise TypeError(f"{records[:50]!r} is neither records nor a pathlib.Path of a file of them")
    given = _lines(records) if isinstance(records, Path) else records
    return columns.table(
        [
            _Message(offset, each if isinstance(each, Record) else Record(each))
            for offset, each in enumerate(given)
        ]
    )


def _lines(file: Path) -> Iterable[bytes]:
    return [line for line in file.read_bytes().removeprefix(_BOM).splitlines() if line.strip()]


@dataclass(frozen=True)
class _Message:
    """A record with the interface of confluent-kafka's messages."""

    number: int
    record: Record

    def offset(self) -> int:
        return self.number

    def timestamp(self) -> tuple[int, int]:
        return _CREATE_TIME, (self.record.timestamp - _EPOCH) // _MILLISECOND

    def key(self) -> bytes | None:
        return _encoded(self.record.key)

    def value(self) -> bytes | None:
        value = self.record.value
        return orjson.dumps(dict(value)) if isinstance(value, Mapping) else _encoded(value)

    def headers(self) -> list[tuple[str, bytes | None]]:
        return [(name, _encoded(value)) for name, value in self.record.headers]


def _encoded(text: str | bytes | None) -> bytes | None:
    return text.encode() if isinstance(text, str) else text
