"""Tables of tombstones, as positions hold them."""

from dataclasses import fields

import numpy as np
import pyarrow as pa

from spark_job.sessions.state.open_sessions import OpenSessions


def tombstones(**starts: int) -> bytes:
    """An encoded table of what is left of sessions over a limit: {key: offset of the start}."""
    empty, count = OpenSessions.empty(), len(starts)
    numbers = {
        field.name: np.zeros(count, column.dtype)
        for field in fields(OpenSessions)
        if isinstance(column := getattr(empty, field.name), np.ndarray)
    }
    at = np.array(sorted(starts.values()), np.int64)
    table = OpenSessions(
        **numbers
        | {"start": at, "last": at, "irregular": np.ones(count, bool), "repeated": np.full(count, -1)}
        | {"part": np.ones(count, np.int64)}
        | {
            "key": pa.array(sorted(starts, key=starts.__getitem__), pa.large_string()),
            "start_hash": pa.array([b"hash"] * count, pa.large_binary()),
            "start_id": pa.nulls(count, pa.large_binary()),
        }
    )
    return table.encoded
