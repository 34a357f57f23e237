"""What runs on the executors: one call assembles all sessions of a bucket and transforms those that closed."""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

import orjson
import pandas as pd
from pyspark.sql.streaming.state import GroupState

from db.lanes import lane_hash
from spark_job import pgcopy, rows
from spark_job.outputs import EncodedOutputs, encode
from spark_job.packing import unpack
from spark_job.sessions import (
    AssemblySettings,
    ClosedSession,
    Counts,
    DeadLetter,
    Summary,
    assemble,
    to_session,
)
from spark_job.source import source_place
from spark_job.transform import Transform, failure_text, load

_FRAME_BYTES = 256 << 20

Row = dict[str, Any]


class TransformStoppedError(Exception):
    """The transform raised and `[transform] on_error = "stop"`."""


@dataclass(frozen=True)
class BucketWorker:
    """The function of `applyInPandasWithState`; pickled to the executors, so it holds settings only."""

    assembly: AssemblySettings
    topics: tuple[str, ...]
    transform: str
    stop_on_error: bool
    max_row_bytes: int

    def __call__(
        self, key: tuple[Any, ...], frames: Iterable[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        """Assemble the bucket `key[0]`; yield one frame with the columns of `rows.NAMES`."""
        (bucket,) = key
        new = unpack(chain.from_iterable(frame["events"] for frame in frames))
        began = time.perf_counter()
        assembled = assemble(state.get[0] if state.exists else None, new, self.assembly)
        if assembled.open_state is not None:
            state.update((assembled.open_state,))
        elif state.exists:
            state.remove()
        ended = time.perf_counter()
        # Outside of any session's error handling: a module that cannot be imported here is not the session's fault.
        user_transform = load(self.transform)
        found: list[Row] = [self._session(closed, user_transform) for closed in assembled.closed]
        found += [_letter(letter) for letter in assembled.letters]
        seconds = {"assemble_s": ended - began, "transform_s": time.perf_counter() - ended}
        found.append(_summary(bucket, assembled.summary, assembled.counts, seconds))
        yield from _frames(found)

    def _session(self, closed: ClosedSession, user_transform: Transform) -> Row:
        topic_index, partition = source_place(closed.source)
        session = to_session(closed, self.topics[topic_index], partition)
        try:
            encoded = encode(user_transform(session), self.max_row_bytes)
        except (Exception, SystemExit) as error:  # a user's transform may raise anything
            if self.stop_on_error:
                raise TransformStoppedError(
                    f"{self.transform} failed for session {closed.key!r} that ends at {session.end} "
                    '([transform] on_error = "stop"; "dead_letter" keeps such sessions and goes on)'
                ) from error
            return _failed(closed, error, closed.types() if self.assembly.type_path is None else None)
        return _closed(closed, encoded)


def _frames(found: list[Row]) -> Iterator[pd.DataFrame]:
    """The rows in frames of bounded size: an Arrow column holds no more than 2 GiB."""
    begin = size = 0
    for end, row in enumerate(found, 1):
        size += len(row.get("values") or b"")
        if size > _FRAME_BYTES or end == len(found):
            part = found[begin:end]
            columns = {name: [row.get(name) for row in part] for name in rows.NAMES}
            yield pd.DataFrame(columns, columns=list(rows.NAMES)).astype(_PANDAS_TYPES)
            begin, size = end, 0


def _closed(closed: ClosedSession, encoded: EncodedOutputs) -> Row:
    return {
        "kind": rows.SESSION,
        "source": closed.source,
        "session_key": closed.key,
        "first_offset": closed.start_offset,
        "last_offset": closed.end_offset,
        "closing_offset": closed.end_offset,
        "started_ms": closed.started_ms,
        "ended_ms": closed.ended_ms,
        "events": closed.n_events,
        "lane_hash": lane_hash(closed.key.encode()),
        "outputs": encoded.events,
        "topics": encoded.topics,
        "values": encoded.values,
        "keys": encoded.keys,
        "headers": encoded.headers,
        "partitions": encoded.partitions,
        "timestamps": encoded.timestamps,
    }


def _failed(closed: ClosedSession, error: BaseException, types: Sequence[str] | None) -> Row:
    return _letter_row(
        key=closed.key,
        place=(closed.source, closed.start_offset, closed.end_offset, closed.end_offset),
        reason="transform_failed",
        detail=failure_text(error),
        events=list(zip(closed.offsets(), closed.timestamps_ms(), closed.raws(), strict=True)),
        n_events=closed.n_events,
        types=types,
    )


def _letter(letter: DeadLetter) -> Row:
    return _letter_row(
        key=letter.key,
        place=(letter.source, letter.first_offset, letter.last_offset, letter.closing_offset),
        reason=letter.reason,
        detail=letter.detail,
        events=letter.events,
        n_events=letter.n_events,
        types=letter.types,
    )


def _letter_row(
    *,
    key: str | None,
    place: tuple[int, int, int, int],
    reason: str,
    detail: str,
    events: Sequence[tuple[int, int, bytes | None]],
    n_events: int,
    types: Sequence[str | None] | None,
) -> Row:
    source, first, last, closing = place
    return {
        "kind": rows.LETTER,
        "source": source,
        "session_key": key,
        "first_offset": first,
        "last_offset": last,
        "closing_offset": closing,
        "events": n_events,
        "kept": len(events),
        "values": b"".join([pgcopy.nullable(raw) for _, _, raw in events]),
        "partitions": pgcopy.int8s([offset for offset, _, _ in events]),
        "timestamps": pgcopy.int8s([ts for _, ts, _ in events]),
        "headers": None if types is None else b"".join(map(_type, types)),
        "reason": reason,
        "detail": _storable(detail),
    }


def _type(name: str | None) -> bytes:
    return pgcopy.nullable(None if name is None else _storable(name).encode())


def _storable(text: str) -> str:
    """Text that Postgres takes: neither NUL nor lone surrogates."""
    return text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()


def _summary(bucket: int, summary: Summary, counts: Counts, seconds: dict[str, float]) -> Row:
    detail = {
        "open_sessions": summary.open_sessions,
        "open_events": summary.open_events,
        "open_bytes": summary.open_bytes,
        "state_bytes": summary.state_bytes,
        "oldest": sorted(summary.oldest_open.items()),
        "counts": asdict(counts),
        "seconds": seconds,
    }
    return {"kind": rows.SUMMARY, "bucket": bucket, "detail": orjson.dumps(detail).decode()}


_PANDAS_TYPES = {
    name: {"tinyint": "Int8", "int": "Int32", "bigint": "Int64", "string": "str", "binary": "object"}[kind]
    for name, kind in rows.COLUMNS
}
