"""The task on an executor: it takes whole slices of partitions, adds their events to the open sessions, and transforms those that close.

For each partition:
1. take the sessions that are open at the slice's start from the cache, or rebuild them from Kafka (`cache`, `rebuild`);
2. assemble the slice with them, in pieces of bounded size, and run the transform on each session that closes;
3. cache the sessions that are still open, and report them to the driver.

A task is a pure function of the input and the open sessions: retries, speculation, a lost executor or disk change nothing.
"""

import gc
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache, partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa

from contract.session_keys import lane_hash
from service.lifecycle import allocators, fault_points
from service.lifecycle.fault_points import reach
from spark_job.assembly import known_files, letters, rows
from spark_job.assembly.cache import SessionCache
from spark_job.assembly.code_fingerprint import require_code
from spark_job.assembly.rebuild import rebuild
from spark_job.assembly.record_readers import RecordReader
from spark_job.assembly.schemas import RegistryBudget, judged, schemas_for
from spark_job.assembly.slices import Slice, TaskSettings
from spark_job.outputs.encoding import encode
from spark_job.outputs.schemas import output_encoder
from spark_job.outputs.session_row import SessionPlace
from spark_job.outputs.trace_context import TraceContext, trace_contexts
from spark_job.outputs.transform import load_for_run
from spark_job.outputs.transform_failures import TransformRaisedError, TransformStoppedError, run_transform
from spark_job.sessions.assembler import assemble
from spark_job.sessions.errors import DamagedStateError
from spark_job.sessions.result import ClosedSession, Counts, DeadLetter
from spark_job.sessions.session import to_session, value_decoder
from spark_job.sessions.state.open_state import OpenState

PIECE_BYTES = 128 << 20


@dataclass(frozen=True)
class AssemblyTask:
    """The function of `mapInArrow`; Spark sends it to the executors with each batch."""

    settings: TaskSettings
    slices: Mapping[int, Slice]
    """By source number."""
    reader: RecordReader | None = None
    """None: the task's input is the records themselves."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Take the reader's input; yield rows of `rows.SCHEMA`."""
        require_code(self.settings.code)
        _suit_columns()
        known_files.KNOWN.forget_removed()
        if self.settings.fault_file is not None and not fault_points.is_armed():
            fault_points.arm(Path(self.settings.fault_file))
        out = rows.RowBatches()
        budget = RegistryBudget()
        partition: _Partition | None = None
        if self.reader is not None:
            batches = self.reader.read(batches, self.slices, self.settings)
        for source, piece in _pieces(batches):
            if partition is None or partition.source != source:
                if partition is not None:
                    yield from out.add(partition.finish())
                partition = _Partition(source, self.slices[source], self.settings, budget)
            for row in partition.take(piece):
                yield from out.add(row)
        if partition is not None:
            yield from out.add(partition.finish())
        yield from out.rest()
        _freeze()


_suit_columns = cache(allocators.suit_columns)


@cache
def _freeze() -> None:
    """Exempt the loaded modules from garbage collection, once in a worker's life: Spark collects after each task, and would scan them."""
    gc.collect()
    gc.freeze()


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.Table]]:
    """Yield (source, records) in the order given, with as many records of a source together as fit."""
    held: list[pa.RecordBatch] = []
    source, size = -1, 0
    for batch in batches:
        sources = batch.column("source").to_numpy()
        borders = np.flatnonzero(sources[1:] != sources[:-1]) + 1
        bounds = [0, *borders.tolist(), len(sources)] if len(sources) else [0]
        for begin, end in pairwise(bounds):
            part = batch.slice(begin, end - begin)
            found = int(sources[begin])
            if held and (found != source or size > PIECE_BYTES):
                yield source, pa.Table.from_batches(held)
                held, size = [], 0
            source = found
            held.append(part)
            size += part.get_total_buffer_size() if end - begin == len(sources) else part.nbytes
    if held:
        yield source, pa.Table.from_batches(held)


class _Partition:
    """One partition's slice."""

    def __init__(self, source: int, of: Slice, settings: TaskSettings, budget: RegistryBudget) -> None:
        self.source = source
        self._of, self._settings, self._budget = of, settings, budget
        self._cache = SessionCache(settings.cache, settings.outbox_uuid, of)
        self._transform = load_for_run(settings.transform)
        self._schemas = schemas_for(of.rules, settings)
        self._decode = value_decoder(of.rules.format, self._schemas)
        self._encode = partial(
            encode,
            max_bytes=settings.transform.max_row_bytes,
            encode_value=output_encoder(settings.registry, settings.output_schemas),
            allowed=settings.transform.topics,
        )
        self._place = SessionPlace(of.topic_id, of.partition)
        self._counts = Counts()
        self._bytes = self._unusable_schema = 0
        self._seconds = {"open_s": 0.0, "assemble_s": 0.0, "transform_s": 0.0}
        self._rebuilt: dict[str, float | bool] | None = None
        self._state: OpenState | None = None
        self._refused = of.refused

    def take(self, new: pa.Table) -> Iterator[rows.Row]:
        """Assemble some records; yield the closed sessions and the letters."""
        state = self._state
        if state is None:
            state, settled = self._open()
            for letter in settled:
                yield letters.letter(self.source, letter)
        began = time.perf_counter()
        try:
            of = judged(self._schemas, new, self._of.rules, self._refused, self._budget)
            assembled = assemble(state, of.records, self._of.rules, of.schemas)
        except DamagedStateError:
            self._discard_cached()
            raise
        self._state, self._refused = assembled.state, of.refused
        _add(self._counts, assembled.counts)
        self._bytes += new.nbytes
        self._unusable_schema += of.unusable
        ended = time.perf_counter()
        self._seconds["assemble_s"] += ended - began
        for closed, context in zip(assembled.closed, trace_contexts(new, assembled.closed), strict=True):
            yield self._session(closed, context)
        for letter in assembled.letters:
            yield letters.letter(self.source, letter)
        self._seconds["transform_s"] += time.perf_counter() - ended

    def finish(self) -> rows.Row:
        """Cache what is open; return the row that reports it to the driver."""
        assert self._state is not None, "a partition without records reaches no task"
        began = time.perf_counter()
        state, totals = self._state, self._state.live.totals
        reach("task.after_assembly")
        self._cache.check_unchanged()
        try:
            self._cache.store(state, {self._of.digest or "", self._of.committed_digest})
        except DamagedStateError:
            self._discard_cached()
            raise
        reach("task.after_cache")
        self._seconds["open_s"] += time.perf_counter() - began
        detail = {
            "safe": state.safe_offset,
            "sessions": len(state.live),
            "events": totals.events,
            "bytes": totals.held_bytes,
            "digest": state.digest,
            "refused": self._refused.since(state.safe_offset).to_json()
            if state.safe_offset is not None
            else [],
            "counts": {
                **asdict(self._counts),
                "bytes": self._bytes,
                "unusable_schema": self._unusable_schema,
            },
            "seconds": self._seconds,
            "rebuilt": self._rebuilt,
            "problem": self._cache.problem,
        }
        return {
            "kind": rows.PARTITION,
            "source": self.source,
            "detail": orjson.dumps(detail).decode(),
            "tombstones": state.remembered or None,
        }

    def _open(self) -> tuple[OpenState, list[DeadLetter]]:
        """Return the sessions open at the slice's start, and the letters of sessions that timed out during the rebuild, if they are
        kept (Slice.keep_timed_out).
        """
        began = time.perf_counter()
        reach("task.before_open")
        settled: list[DeadLetter] = []
        state = OpenState.empty() if self._of.digest == "" else None
        if state is None and self._of.digest is not None:
            state = self._cache.load(self._of.digest)
        if state is None:
            found = rebuild(self._of, self._settings, self._budget)
            reach("task.after_rebuild")
            state = found.state
            settled = found.timed_out
            self._rebuilt = {
                "events": found.events,
                "seconds": round(found.seconds, 3),
                "differs": found.differs,
            }
        state = state.with_types(self._of.names_before)
        if self._of.rules.format not in ("json", "bytes"):
            # Fetched now, so that no transform waits for the registry. A schema may leave the memory before its use, but only if all
            # together are very large.
            for schema_id in sorted(frozenset().union(*(chunk.schema_ids for chunk in state.chunks))):
                self._schemas[schema_id]
        self._seconds["open_s"] += time.perf_counter() - began
        return state, settled

    def _discard_cached(self) -> None:
        """Remove a damaged state. Spark repeats the task, or the job starts again: the sessions are then rebuilt from Kafka."""
        self._cache.discard(self._of.digest or "")

    def _session(self, closed: ClosedSession, context: TraceContext) -> rows.Row:
        session = to_session(closed, self._of.topic, self._of.partition, self._decode)
        rules, transform = self._of.rules, self._settings.transform
        try:
            encode_outputs = partial(self._encode, context=context)
            encoded = run_transform(self._transform, session, self._decode, encode_outputs)
        except TransformRaisedError as raised:
            if transform.stop_on_error:
                # The text names the session by its end, not its key: the outbox stores it, and an erasure would not find a key in it.
                raise TransformStoppedError(
                    f"{transform.function} failed for the session that ends at {'/'.join(map(str, session.end))} "
                    '([transform] on_error = "stop"; "dead_letter" keeps such sessions and continues)'
                ) from raised.cause
            return letters.failed(self.source, closed, raised.cause, types_in_header=rules.type_path is None)
        return {
            "kind": rows.SESSION,
            "source": self.source,
            "session_key": closed.key,
            "first_offset": closed.start_offset,
            "last_offset": closed.end_offset,
            "lane_hash": lane_hash(closed.key.encode()),
            "outputs": encoded.events,
            "value_bytes": encoded.value_bytes,
            "fields": self._place.fields(closed, encoded),
        }


def _add(total: Counts, more: Counts) -> None:
    for name in Counts.__slots__:
        setattr(total, name, getattr(total, name) + getattr(more, name))
