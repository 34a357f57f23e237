"""What an event costs a task with few and with many sessions open: the whole task, with its cache on disk and the transform.

Four partitions in one task of one thread. Each event belongs to a random open session, or to one of the first so many, while the others
are idle; one that has its 102 events ends, and the next begins. So all batches are alike, and as many sessions are open after as before.
CPU of the process; of each batch, the events are made beforehand.
"""

import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa

from spark_job.assembly.code_fingerprint import task_code_fingerprint
from spark_job.assembly.rows import PARTITION
from spark_job.assembly.slices import AppliedRules, RulesFrom, Slice, TaskSettings
from spark_job.assembly.task import AssemblyTask
from spark_job.input.columns import RecordColumns
from spark_job.outputs import transform
from spark_job.outputs.settings import TransformOf
from spark_job.sessions.settings import AssemblySettings

PARTITIONS = 4
EVENTS = 102
_TRANSFORM = "benchmarks.transforms:twenty"
_FILL_EVENTS = 400_000
_FILLED = 3
_WARM_UP = 2
_PAD = b"x" * 40
_TIMEOUT_MS = 86_400_000


class Partition:
    """One partition's input, made up as it goes, and where its task is."""

    def __init__(self, number: int, sessions: int, random: np.random.Generator) -> None:
        self._number, self._random = number, random
        self._next = np.zeros(sessions, np.uint8)
        """Of each open session: the number of its next event."""
        self._life = np.zeros(sessions, np.uint16)
        rules = RulesFrom(0, AppliedRules(AssemblySettings(timeout_ms=_TIMEOUT_MS), RecordColumns()))
        topic_id = f"{number:022}"
        self.slice = Slice(
            "bench", topic_id, number, start=0, end=0, safe=0, digest="", tombstones=b"", lineage=(rules,)
        )

    def fill(self) -> Iterator[pa.RecordBatch]:
        """Open all sessions, with three events each: they go on as if they had more.

        The table of open sessions is as large as with more events, the input is not.
        """
        sessions = len(self._next)
        at = self._random.integers(1, EVENTS, sessions, np.uint8)
        has = np.minimum(at, _FILLED)
        for first in range(0, sessions, share := max(1, _FILL_EVENTS // EVENTS)):
            some = np.arange(first, min(first + share, sessions))
            yield self._batch(np.repeat(some, has[some]))
        self._next = at

    def batch(self, events: int, active: int) -> pa.RecordBatch:
        """The next records: of sessions at random, out of so many."""
        return self._batch(self._random.integers(0, min(active, len(self._next)), events))

    def _batch(self, of: np.ndarray) -> pa.RecordBatch:
        values = []
        for session in of.tolist():
            at = self._next[session]
            kind = b"start_event" if at == 0 else b"end_event" if at == EVENTS - 1 else b"entry_event"
            life = self._life[session]
            values.append(
                b'{"event_type":"%b","session_key":"s-%d-%d","n":%d,"pad":"%b"}'
                % (kind, session, life, at, _PAD)
            )
            self._next[session] = (at + 1) % EVENTS
            self._life[session] += at == EVENTS - 1
        start = self.slice.end
        self.slice = replace(self.slice, start=start, end=start + len(of))
        offsets = np.arange(start, start + len(of))
        columns = {
            "source": pa.array(np.full(len(of), self._number, np.int32)),
            "offset": pa.array(offsets),
            "ts": pa.array(offsets // 100),
            "value": pa.array(values, pa.binary()),
        }
        return pa.RecordBatch.from_pydict(columns)


def event_cpu_us(sessions: int, batch_events: int, batches: int, active: int | None = None) -> float:
    """Return the CPU of an event in batches of that size, in microseconds; `sessions` are open in all. `active`: that go on; None: all."""
    random = np.random.default_rng(1)
    folder = Path(tempfile.mkdtemp(prefix="spark-outbox-bench-"))
    settings = TaskSettings(
        outbox_uuid="bench",
        cache=str(folder),
        transform=TransformOf(_TRANSFORM, transform.fingerprint(transform.load(_TRANSFORM)), True, 1 << 26),
        code=task_code_fingerprint(),
    )
    partitions = [Partition(number, sessions // PARTITIONS, random) for number in range(PARTITIONS)]
    spent = 0.0
    try:
        for partition in partitions:
            for filling in partition.fill():
                _run(settings, [partition], [filling])
        for number in range(_WARM_UP + batches):
            records = [
                partition.batch(batch_events // PARTITIONS, (active or sessions) // PARTITIONS)
                for partition in partitions
            ]
            seconds = _run(settings, partitions, records)
            spent += seconds if number >= _WARM_UP else 0.0
    finally:
        shutil.rmtree(folder)
    return 1e6 * spent / (batches * batch_events)


def _run(settings: TaskSettings, partitions: list[Partition], records: list[pa.RecordBatch]) -> float:
    """Run a task; return its seconds of CPU. Each partition continues from what it says is open."""
    by_number = {partition.slice.partition: partition for partition in partitions}
    task = AssemblyTask(settings, {number: one.slice for number, one in by_number.items()})
    began = time.process_time()
    out = list(task(records))
    seconds = time.process_time() - began
    for row in pa.Table.from_batches(out).to_pylist():
        if row["kind"] == PARTITION:
            one, detail = by_number[row["source"]], orjson.loads(row["detail"])
            if detail["rebuilt"] or detail["problem"]:
                raise RuntimeError(f"the cache was not used: {detail}")
            one.slice = replace(one.slice, digest=detail["digest"])
    return seconds
