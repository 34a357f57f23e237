"""Outputs as the outbox stores them, and how two lists of them differ."""

import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from struct import Struct
from typing import Any

import orjson

from contract import header_values
from service.printable import shown_bytes
from spark_job.api import OutputEvent, utc
from spark_job.outputs.encoding import EncodedOutputs, EncodeValue, encode

_INT4, _INT8 = Struct(">i"), Struct(">q")
_NO_BOUND = 2**62
_INDENTED = orjson.OPT_INDENT_2


@dataclass(frozen=True)
class StoredOutput:
    """An output event as the outbox has it, and as it will be sent."""

    topic: str
    key: bytes
    value: bytes | None
    """The payload, byte for byte; None: a tombstone."""
    headers: tuple[tuple[str, bytes | None], ...] = ()
    """The transform's headers, and the trace context that the job adds."""
    partition: int | None = None
    """None: chosen by the key."""
    timestamp: datetime | None = None
    """None: the time of sending."""
    session_key: str = field(default="", compare=False)


def stored(encoded: EncodedOutputs, session_key: str) -> list[StoredOutput]:
    """Return the outputs that a session's row would contain."""
    own_key = session_key.encode()
    columns = zip(
        _elements(encoded.topics, encoded.events),
        _elements(encoded.keys, encoded.events),
        _elements(encoded.values, encoded.events),
        _elements(encoded.headers, encoded.events),
        _elements(encoded.partitions, encoded.events),
        _elements(encoded.timestamps, encoded.events),
        strict=True,
    )
    return [
        StoredOutput(
            (topic or b"").decode(),
            own_key if key is None else key,
            value,
            stored_headers(None if headers is None else orjson.loads(headers[1:])),  # behind jsonb's version
            None if partition is None else _INT4.unpack(partition)[0],
            None if timestamp is None else utc(_INT8.unpack(timestamp)[0]),
            session_key,
        )
        for topic, key, value, headers, partition, timestamp in columns
    ]


def stored_headers(found: Sequence[Sequence[Any]] | None) -> tuple[tuple[str, bytes | None], ...]:
    """Return the headers of an output from the outbox's JSON, `[[name, text or {"base64": ...} or null], ...]`."""
    return tuple((name, header_values.read(value)) for name, value in found or ())


def difference(
    expected: Iterable[OutputEvent | StoredOutput],
    got: Iterable[StoredOutput],
    encode_value: EncodeValue | None = None,
    names: tuple[str, str] = ("expected", "got"),
) -> str:
    """Return how outputs differ from what was expected, as a unified diff; empty if they do not.

    An OutputEvent is compared as it would be stored; an OutputEvent without a key, with the session's key. `names`: of the diff's two
    sides. Raises InvalidOutputError if an expected event could not be stored.
    """
    has = list(got)
    wants = [
        each if isinstance(each, StoredOutput) else _as_stored(each, at, has, encode_value)
        for at, each in enumerate(expected)
    ]
    if wants == has:
        return ""
    raw = any(a != b and [*_lines(a)] == [*_lines(b)] for a, b in zip(wants, has, strict=False))
    before, after = ([line for each in of for line in _lines(each, raw=raw)] for of in (wants, has))
    return "\n".join(difflib.unified_diff(before, after, *names, lineterm="", n=8))


def _as_stored(
    event: OutputEvent, at: int, got: Sequence[StoredOutput], encode_value: EncodeValue | None
) -> StoredOutput:
    (found,) = stored(encode([event], _NO_BOUND, encode_value), "")
    if event.key is not None or not got:
        return found
    # The event belongs to the session of an equal output, else to that of the output at its index.
    by_session = [replace(found, key=each.session_key.encode()) for each in got]
    return next(
        (mine for mine, each in zip(by_session, got, strict=True) if mine == each),
        by_session[min(at, len(got) - 1)],
    )


def _lines(output: StoredOutput, *, raw: bool = False) -> Iterator[str]:
    """Show an output for people. `raw`: with the value's exact bytes, because two outputs differ only there."""
    yield f"{output.topic}  key {shown_bytes(output.key)}"
    for name, value in output.headers:
        yield f"  header {name}: {shown_bytes(value)}"
    if output.partition is not None:
        yield f"  partition {output.partition}"
    if output.timestamp is not None:
        yield f"  timestamp {output.timestamp.isoformat()}"
    yield from (f"  {line}" for line in _value_lines(output.value, raw=raw))


def _value_lines(value: bytes | None, *, raw: bool) -> list[str]:
    if value is not None and not raw:
        try:
            return orjson.dumps(orjson.loads(value), option=_INDENTED).decode().split("\n")
        except orjson.JSONDecodeError:
            pass
    return shown_bytes(value).split("\n")


def _elements(encoded: bytes | None, count: int) -> list[bytes | None]:
    """Return the elements of an array in COPY's binary format; None for each if the whole array is NULL."""
    if encoded is None:
        return [None] * count
    found: list[bytes | None] = []
    at = 0
    for _ in range(count):
        (size,) = _INT4.unpack_from(encoded, at)
        at += _INT4.size
        found.append(None if size < 0 else encoded[at : at + size])
        at += max(size, 0)
    return found
