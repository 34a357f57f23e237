"""What an event costs a task with few and with many sessions open: the whole task, with its cache on disk and the transform.

    python -m benchmarks.open_sessions [--open 1000 --open 10000 --open 100000] [--batch 2000 --batch 20000 --batch 200000]

Four partitions in one task of one thread. Each event belongs to a random open session; one that has its 102 events ends, and the next
begins. So all batches are alike, and as many sessions are open after as before. CPU of the process; of each batch, the events are made
beforehand. A small batch with many sessions open pays for the table of open sessions, which each batch writes and reads anew.
"""

import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import orjson
import pyarrow as pa
import typer

from benchmarks.support.report import Json, Measured, Page, Report
from spark_job.assembly import transform
from spark_job.assembly.fingerprint import task_code_fingerprint
from spark_job.assembly.rows import PARTITION
from spark_job.assembly.slices import Judge, Slice, TaskSettings, TransformOf
from spark_job.assembly.task import AssemblyTask
from spark_job.input.columns import RecordColumns
from spark_job.sessions.settings import AssemblySettings

PARTITIONS = 4
EVENTS = 102
_TRANSFORM = "benchmarks.transforms:twenty"
_FILL_EVENTS = 400_000
_PAD = b"x" * 40
_TIMEOUT_MS = 86_400_000


class Partition:
    """One partition's input, made up as it goes, and where its task is."""

    def __init__(self, number: int, sessions: int, random: np.random.Generator) -> None:
        self._number, self._random = number, random
        self._next = np.zeros(sessions, np.int64)
        """Of each open session: the number of its next event."""
        self._life = np.zeros(sessions, np.int64)
        judge = Judge(0, AssemblySettings(timeout_ms=_TIMEOUT_MS), RecordColumns())
        topic_id = f"{number:022}"
        self.slice = Slice(
            "bench", topic_id, number, start=0, end=0, safe=0, digest="", tombstones=b"", judges=(judge,)
        )

    def fill(self, most_events: int = EVENTS - 1) -> Iterator[pa.RecordBatch]:
        """Open all sessions, each with as many events as it has on average by now, and not more than `most_events`.

        Where that is fewer, the sessions go on as if they had more: the table of open sessions is as large, the input is not.
        """
        sessions = len(self._next)
        at = self._random.integers(1, EVENTS, sessions)
        has = np.minimum(at, most_events)
        for first in range(0, sessions, share := max(1, _FILL_EVENTS // EVENTS)):
            some = np.arange(first, min(first + share, sessions))
            yield self._batch(np.repeat(some, has[some]))
        self._next = at

    def batch(self, events: int) -> pa.RecordBatch:
        """The next records: of sessions at random."""
        return self._batch(self._random.integers(0, len(self._next), events))

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


def main(
    open_sessions: Annotated[
        list[int] | None, typer.Option("--open", help="Open sessions, all together.")
    ] = None,
    batch_events: Annotated[list[int] | None, typer.Option("--batch", help="Events of a batch.")] = None,
    batches: Annotated[int, typer.Option(min=3, help="Batches that are measured.")] = 10,
    page: Page = None,
    json: Json = False,
) -> None:
    """Measure and print."""
    sizes = batch_events or [2_000, 20_000, 200_000]
    labels = {f"us_{size}": f"CPU of an event, batches of {size:,}, us" for size in sizes}
    report = Report(
        "open-sessions", {"partitions": PARTITIONS}, labels | {"table_kb": "written for each small batch, kB"}
    )
    for sessions in sorted(open_sessions or [1_000, 10_000, 100_000], reverse=True):
        report.add(f"{sessions:,} open", measure(sessions, sizes, batches))
    report.finish(page, as_json=json)


def measure(sessions: int, sizes: list[int], batches: int, most_filled: int = EVENTS - 1) -> Measured:
    """Return the CPU of an event for each size of a batch. `most_filled`: events that a session gets before it is measured."""
    random = np.random.default_rng(1)
    folder = Path(tempfile.mkdtemp(prefix="spark-outbox-bench-"))
    settings = TaskSettings(
        outbox_uuid="bench",
        cache=str(folder),
        transform=TransformOf(_TRANSFORM, transform.fingerprint(transform.load(_TRANSFORM)), True, 1 << 26),
        code=task_code_fingerprint(),
    )
    partitions = [Partition(number, sessions // PARTITIONS, random) for number in range(PARTITIONS)]
    try:
        for partition in partitions:
            for filling in partition.fill(most_filled):
                _run(settings, [partition], [filling])
        found: dict[str, float] = {}
        for size in sizes:
            spent = 0.0
            for number in range(batches + 2):
                records = [partition.batch(size // PARTITIONS) for partition in partitions]
                seconds = _run(settings, partitions, records)
                spent += seconds if number >= 2 else 0.0
            found[f"us_{size}"] = 1e6 * spent / (batches * size)
            if size == min(sizes):
                found["table_kb"] = sum(each.stat().st_size for each in _newest_tables(folder)) / 1e3
        return found
    finally:
        shutil.rmtree(folder)


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


def _newest_tables(folder: Path) -> Iterator[Path]:
    """Of each partition the table of open sessions that was written last."""
    for partition in (folder / "bench").iterdir():
        yield max(partition.glob("*.sessions"), key=lambda path: path.stat().st_mtime)


if __name__ == "__main__":
    typer.run(main)
