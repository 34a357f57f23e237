"""A Kafka record as the columns that the assembler reads: offset, ts and value, and what comes out of the record's key or headers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa


@dataclass(frozen=True)
class RecordColumns:
    """Where the columns `key`, `type` and `event_id` come from: a header's name, or "" for the record's own key.

    A column that is not named is read out of the value by the assembler.
    """

    sources: Mapping[str, str] = field(default_factory=dict)

    @property
    def headers(self) -> dict[str, str]:
        """{column: header}."""
        return {column: header for column, header in self.sources.items() if header}

    def table(self, messages: Sequence[Any]) -> pa.Table:
        """Return confluent-kafka messages of one partition, in offset order, as columns; what input/source.py selects from Spark's."""
        columns = {
            "offset": pa.array([message.offset() for message in messages], pa.int64()),
            "ts": pa.array([message.timestamp()[1] for message in messages], pa.int64()),
            "value": pa.array([message.value() for message in messages], pa.binary()),
        }
        for column, header in self.sources.items():
            values = (_last(each.headers(), header) if header else each.key() for each in messages)
            columns[column] = pa.array(list(values), pa.binary())
        return pa.table(columns)


def _last(headers: Sequence[tuple[str, bytes | None]] | None, name: str) -> bytes | None:
    """The last header of that name; None where there is none."""
    return next((value for header, value in reversed(headers or []) if header == name), None)
