"""Closed sessions as the assembler gives them, and their rows, made by hand."""

import numpy as np
import pyarrow as pa

from spark_job.assembly.outputs import EncodedOutputs
from spark_job.assembly.session_row import SessionPlace
from spark_job.input.offsets import TopicPartition
from spark_job.sessions.events import END, ENTRY, START, Events
from spark_job.sessions.result import ClosedSession

NAMES = ("start_event", "entry_event", "end_event")


def closed(key: str, start: int, end: int, started_ms: int = 1_000, ended_ms: int = 2_000) -> ClosedSession:
    """A session with an event at each offset from `start` to `end`, both included; the values are empty."""
    count = end - start + 1
    kind = np.full(count, ENTRY, np.int8)
    kind[0], kind[-1] = START, END
    ts = np.linspace(started_ms, ended_ms, count).astype(np.int64)
    payload = pa.array([b""] * count, pa.large_binary())
    return ClosedSession(key, Events(np.arange(start, end + 1), ts, kind, payload, None), 0, count, NAMES)


def fields(session: ClosedSession, where: TopicPartition, outputs: EncodedOutputs) -> bytes:
    """The session's row as it is stored."""
    return SessionPlace(where.topic_id, where.partition).fields(session, outputs)


def output_values(stored: bytes) -> list[bytes | None]:
    """The values of the outputs of a row as it is stored."""
    at = 0
    for _ in range(9):  # the arrays before them
        at += 4 + max(0, _int4(stored, at))
    count = _int4(stored, at + 4 + 12) if _int4(stored, at + 4) else 0
    at += 4 + 12 + 8
    found: list[bytes | None] = []
    for _ in range(count):
        size = _int4(stored, at)
        found.append(None if size < 0 else stored[at + 4 : at + 4 + size])
        at += 4 + max(0, size)
    return found


def _int4(stored: bytes, at: int) -> int:
    return int.from_bytes(stored[at : at + 4], "big", signed=True)
