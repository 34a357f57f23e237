"""A Kafka record as the columns that the assembler reads: offset, ts, value, by_broker, and those from the record's key or headers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from service.kafka.record_headers import headers_of

_LOG_APPEND_TIME = 2  # confluent_kafka.TIMESTAMP_LOG_APPEND_TIME

TRACE_CONTEXT = ("traceparent", "tracestate")
"""The headers of W3C Trace Context. Their columns have the same names."""

CLOCK_HEADER = "outbox-clock"
CLOCK_MARK = b"1"
"""The value of the header `outbox-clock` in a clock record. The record itself has no value (docs/decisions/0047)."""


@dataclass(frozen=True)
class RecordColumns:
    """Where the columns `key`, `type`, `event_id`, `schema_id` and `clock` come from: a header's name, or "" for the record's own key.

    The assembler reads a field without a column from the value. It ignores the columns of a trace context.
    """

    sources: Mapping[str, str] = field(default_factory=dict)

    @property
    def headers(self) -> dict[str, str]:
        """{column: header}."""
        return {column: header for column, header in self.sources.items() if header}

    def with_trace_context(self) -> "RecordColumns":
        """Return these columns and those of a record's trace context."""
        return RecordColumns({**self.sources, **{header: header for header in TRACE_CONTEXT}})

    def table(self, messages: Sequence[Any]) -> pa.Table:
        """Return confluent-kafka messages of one partition, in offset order, as the columns that input/source.py selects, without `source`.

        If several headers have the same name, the last one counts.
        """
        times = [message.timestamp() for message in messages]
        columns = {
            "offset": pa.array([message.offset() for message in messages], pa.int64()),
            "ts": pa.array([ms for _, ms in times], pa.int64()),
            "value": pa.array([message.value() for message in messages], pa.binary()),
            "by_broker": pa.array([int(kind == _LOG_APPEND_TIME) for kind, _ in times], pa.int8()),
        }
        headers = [dict(headers_of(message)) for message in messages] if self.headers else []
        for column, header in self.sources.items():
            values = (each.get(header) for each in headers) if header else (each.key() for each in messages)
            columns[column] = pa.array(list(values), pa.binary())
        return pa.table(columns)
