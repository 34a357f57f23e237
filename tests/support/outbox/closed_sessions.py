"""Closed sessions as the assembler gives them, and their rows, made by hand."""

import numpy as np
import pyarrow as pa

from spark_job.input.offsets import TopicPartition
from spark_job.outputs.encoding import EncodedOutputs
from spark_job.outputs.session_row import SessionPlace
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
