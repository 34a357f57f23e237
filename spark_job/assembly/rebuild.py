"""Rebuild the sessions that are open at an offset: assemble the partition's records in Kafka from the safe offset up to that offset.

Sessions that close before the offset at which the rebuild ends are in the outbox already, and are discarded. Each event is judged by the
assembly rules in force at its offset, and by the verdicts on schema ids that are stored with the position. If a digest
is recorded, the result must have it; that proves the recovery. assembly/task.py (`_open`) chooses between the cache and a rebuild.
"""

import gc
import time
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from operator import methodcaller

import pyarrow as pa

from service.lifecycle.fault_points import reach
from spark_job.assembly.schemas import RegistryBudget, judged_again, schemas_for
from spark_job.assembly.slices import AppliedRules, Slice, TaskSettings
from spark_job.input.reading import committed_records
from spark_job.sessions.assembler import assemble
from spark_job.sessions.result import DeadLetter
from spark_job.sessions.state.open_state import OpenState

PIECE_EVENTS = 100_000
_PIECE_BYTES = 64 << 20


class OpenSessionsDifferError(Exception):
    """The sessions rebuilt from Kafka are not those that were open: input was deleted, compacted or replaced, or the code has changed.

    failures/spark_text.py knows this class by its name in Spark's text.
    """


@dataclass
class Rebuilt:
    """The rebuilt sessions."""

    state: OpenState
    events: int = 0
    seconds: float = 0.0
    differs: bool = False
    """The digest is not the recorded one, and a person accepted that."""
    timed_out: list[DeadLetter] = field(default_factory=list)
    """Letters of sessions that timed out during the rebuild, if they are kept (Slice.keep_timed_out)."""


def rebuild(of: Slice, task: TaskSettings, budget: RegistryBudget) -> Rebuilt:
    """Return the sessions that are open at the slice's start. `budget`: the task's.

    Raises OpenSessionsDifferError, and as `committed_records` and `judged_again`.
    """
    began = time.perf_counter()
    found = Rebuilt(OpenState.awaiting(of.tombstones))
    if of.safe < of.start:
        with _without_garbage_collection():
            _read_again(of, task, budget, found)
    found.state = found.state.with_remembered(of.tombstones, keep_own=of.digest is None)
    if of.digest is not None:
        found.differs = found.state.digest != of.digest
        if found.differs and not of.accept_differing:
            raise OpenSessionsDifferError(_difference(of, found))
    found.seconds = time.perf_counter() - began
    return found


def _read_again(of: Slice, task: TaskSettings, budget: RegistryBudget, found: Rebuilt) -> None:
    for applied, new in _pieces(of, task):
        # `max_open_bytes` is not applied again: the sessions that it ended began below the safe offset, so a rebuild does not see them
        # whole (sessions/partition_limits.py).
        rules = replace(applied.rules, max_open_bytes=None)
        again = judged_again(schemas_for(rules, task), new, rules, of.refused, budget)
        assembled = assemble(found.state, again.records, rules, again.schemas)
        found.state = assembled.state
        found.events += len(new)
        reach("task.during_rebuild")
        if of.keep_timed_out:
            found.timed_out += [each for each in assembled.letters if each.reason == "timed_out"]


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Pause garbage collection, which would take a third of the time: it would scan a piece's messages again and again, though none is in
    a cycle.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _difference(of: Slice, found: Rebuilt) -> str:
    live = found.state.live
    return (
        f"{of.place}: the sessions open at offset {of.start}, rebuilt from offset {of.safe} on, are not those that the outbox recorded: "
        f"{len(live)} sessions with {live.totals.events} events have the digest {found.state.digest or '(none)'}, recorded is "
        f"{of.digest or '(none)'}; {found.events} records were read. Input was replaced in between (an unclean leader election, a "
        "restored cluster), or another version of the assembler judged it"
    )


def _pieces(of: Slice, task: TaskSettings) -> Iterator[tuple[AppliedRules, pa.Table]]:
    """Yield the records of [safe, start) in bounded pieces, each with the rules that apply to it.

    Of a record only the columns that the rules name are kept: its key and headers may be a thousand times as large as its value.
    """
    # The rules of an offset are the last ones that begin at or below it.
    borders = [each.from_offset for each in of.lineage[1:]] + [of.start]
    number, events, size, piece = 0, 0, 0, list[pa.Table]()
    for records in committed_records(
        task.kafka, of.topic, of.partition, of.safe, of.start, task.kafka_timeout_s
    ):
        while records:
            mine = bisect_left(records, borders[number], key=methodcaller("offset"))
            if mine:
                piece.append(of.lineage[number].applied.columns.table(records[:mine]))
                events, size = events + mine, size + piece[-1].nbytes
            records = records[mine:]
            if records or events >= PIECE_EVENTS or size > _PIECE_BYTES:
                if piece:
                    yield of.lineage[number].applied, pa.concat_tables(piece)
                events, size, piece = 0, 0, []
            number += bool(records)
    if piece:
        yield of.lineage[number].applied, pa.concat_tables(piece)
