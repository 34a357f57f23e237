"""Random histories of one outbox: input, crashes, lost checkpoints, restores. All code is the job's own except Spark and Kafka.

What stands for Spark (memory_checkpoint.py) calls the executors' function for each bucket. What decides (`Start`), what opens generations,
and what writes batches is the real thing on a real Postgres.
"""

import copy
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import orjson
import pandas as pd
import psycopg
import pyarrow as pa
from psycopg.rows import TupleRow

from db.settings import SessionSettings, Settings
from spark_job import Event, OutputEvent, Session, requests, savepoints, writer
from spark_job.assembly import assembly_settings
from spark_job.buckets import bucket_values
from spark_job.kafka_input import InputTopics
from spark_job.offsets import Offsets, TopicPartition
from spark_job.query import batch_range
from spark_job.recovery import Accepted
from spark_job.requests import Kind, Request
from spark_job.sink import Sink
from spark_job.start import Start, Started
from spark_job.worker import BucketWorker
from tests.acceptance.expectation import spark_hash
from tests.integration.job.memory_checkpoint import Bounds, Disk, Files, State
from tests.integration.job.random_log import random_log
from tests.integration.job.sink_world import SCHEMA
from tests.reference.assembled import table
from tests.reference.model import Record

Connection = psycopg.Connection[TupleRow]

TOPIC, TOPIC_ID = "input", "dG9waWMgaWQgZm9yIHRlc3Q"
_CHECKPOINT = "/checkpoint"
_MOST_IN_A_BATCH = (0, 1, 3, 8, 30)


def outputs(session: Session) -> list[OutputEvent]:
    """The transform: what it returns depends on every event of the session."""
    events: list[Event] = list(session.events)
    text = f"{session.key} {[event.offset for event in events]} {[event.raw for event in events]}".encode()
    return [OutputEvent("out", text), OutputEvent("out", {"events": len(events)})]


def settings() -> Settings:
    """Short sessions; the transform is `outputs`."""
    return Settings.model_validate(
        {
            "postgres": {"dsn": "postgresql://localhost/unused"},
            "kafka": {"bootstrap_servers": "unused:9092"},
            "source": {"topics": [TOPIC]},
            "session": SessionSettings(timeout_s=60, grace_s=20, max_events=5).model_dump(),
            "transform": {"function": "tests.integration.job.history:outputs"},
            "job": {"checkpoint": _CHECKPOINT, "buckets": 4},
        }
    )


@dataclass(frozen=True)
class Reissue:
    """A promise: everything that closes from here on goes out with this revision."""

    revision: int
    floor: Offsets


class History:
    """The life of one outbox. `run` plays it; the tables then hold what came of it."""

    def __init__(self, connection: Connection, seed: int) -> None:
        self.chance = random.Random(seed)
        self.connection = connection
        self.log = random_log(self.chance)
        # The last partition is added on the way.
        self.visible = max(1, len(self.log) - self.chance.randint(0, 1))
        self.settings = settings()
        self.disk = Disk()
        self.copies: list[tuple[str, Files]] = []
        self.savepoints = 0
        self.accepted = Accepted()
        self.reissue: Reissue | None = None
        self.skips: dict[int, Offsets] = {}
        """{generation of a restore with skip: what had been done before}"""
        self.restored: list[str] = []
        self.steps: list[str] = []
        self._worker = BucketWorker(
            assembly_settings(self.settings), (TOPIC,), self.settings.transform.function, False, 1 << 20
        )
        self._next: int
        self._sink: Sink
        self.now = self._start()

    @property
    def files(self) -> Files:
        """Of the generation in force."""
        return self.disk.directories.setdefault(self.now.directory.path, Files())

    def run(self, steps: int) -> None:
        """Play so many random steps, then read the input to its end."""
        for _ in range(steps):
            step = self.chance.choices([s for s, _ in _STEPS], [weight for _, weight in _STEPS])[0]
            self.steps.append(step.__name__.strip("_"))
            step(self)
        self.visible = len(self.log)
        while self._end() != self._latest():
            self.batch(most=10)

    def batch(self, *, crash: str | None = None, most: int | None = None) -> None:
        """One micro-batch as Spark runs it. `crash`: "before" the sink's commit, or "after" it and before Spark's own."""
        files, number = self.files, self._next
        if number not in files.planned:
            files.planned[number] = self._plan(most)
        planned = batch_range(self.now, number)
        if crash == "before":
            return
        rows, states = self._execute(planned.start, planned.end, files.states.get(number - 1, {}))
        self._sink.write(rows, number, planned)
        if crash == "after":
            return
        files.states[number] = states
        files.committed = number
        self._next = number + 1

    def restart(self, kind: Kind | None = None, **arguments: Any) -> None:
        """The process ends, and another starts."""
        writer.give_back(self.connection, self._run_id)
        request = None
        if kind is not None:
            number = requests.ask(self.connection, self._run_id, kind, arguments)
            request = Request(number, self._run_id, kind, dict(arguments))
        self.now = self._start(request)

    def _start(self, request: Request | None = None) -> Started:
        self._run_id = uuid4()
        topics = InputTopics({TOPIC: TOPIC_ID}, {TOPIC: list(range(self.visible))})
        begin = Start(self.settings, self._run_id, 1, "transform", self.accepted, False, request)
        kafka: Any = Bounds(self._latest(), lambda: writer.read_owner(self.connection).run_id == self._run_id)
        disk: Any = self.disk
        started = begin.run(self.connection, kafka, topics, disk)
        self.restored.append(started.resumption.restored)
        self._next = started.resumption.spark_batch
        self._sink = Sink(
            self.connection,
            run_id=self._run_id,
            generation=started.generation,
            transform_fingerprint="transform",
            max_row_bytes=1 << 20,
            input_topics=lambda: InputTopics({TOPIC: TOPIC_ID}, {TOPIC: list(range(self.visible))}),
        )
        return started

    def _latest(self) -> Offsets:
        return Offsets({TopicPartition(TOPIC_ID, p): len(self.log[p]) for p in range(self.visible)})

    def _end(self) -> Offsets:
        return self.files.planned.get(self._next - 1, self.now.generation.start)

    def _plan(self, most: int | None) -> Offsets:
        begin = self._end()
        return Offsets(
            {
                where: min(
                    latest,
                    begin.at(where) + (self.chance.choice(_MOST_IN_A_BATCH) if most is None else most),
                )
                for where, latest in self._latest().items()
            }
        )

    def _execute(
        self, begin: Offsets, end: Offsets, states: Mapping[int, bytes]
    ) -> tuple[pa.Table, dict[int, bytes]]:
        """Let the executors' function work on each bucket that has records."""
        generation = self.now.generation
        values = bucket_values(generation.buckets, generation.shuffle_partitions)
        of_bucket: dict[int, list[Record]] = {}
        for where, to in end.items():
            for record in self.log[where.partition][begin.at(where) : to]:
                of_bucket.setdefault(values[spark_hash(_key(record)) % len(values)], []).append(record)
        after = dict(states)
        frames = []
        for bucket, records in of_bucket.items():
            state: Any = State(states.get(bucket))
            packed = pd.DataFrame({"events": [_stream(table(records, self._worker.assembly))]})
            frames += list(self._worker((bucket,), [packed], state))
            after.pop(bucket, None)
            if state.blob is not None:
                after[bucket] = state.blob
        parts = [pa.Table.from_pandas(frame, SCHEMA, preserve_index=False) for frame in frames]
        return pa.concat_tables(parts) if parts else SCHEMA.empty_table(), after

    # Steps

    def _batch(self) -> None:
        self.batch()

    def _crash_before_the_commit(self) -> None:
        self.batch(crash="before")
        self.restart()

    def _crash_between_the_commits(self) -> None:
        self.batch(crash="after")
        self.restart()

    def _restart(self) -> None:
        self.restart()

    def _lose_the_checkpoint(self) -> None:
        self.disk.directories.pop(self.now.directory.path, None)
        self.restart()

    def _lose_it_between_the_commits(self) -> None:
        self.batch(crash="after")
        self._lose_the_checkpoint()

    def _lose_it_twice(self) -> None:
        self._lose_the_checkpoint()
        if self.chance.random() < 0.7:
            self.batch()
        self._lose_the_checkpoint()

    def _lose_the_newest_plan(self) -> None:
        self.files.planned.pop(max(self.files.planned, default=0), None)
        self.restart()

    def _copy_the_checkpoint(self) -> None:
        self.copies.append((self.now.directory.path, copy.deepcopy(self.files)))

    def _roll_the_checkpoint_back(self) -> None:
        """Put a copy in the place of the newest directory: an older one, or another generation's, however far that is."""
        number = self._next - 1
        fitting = [
            files
            for path, files in self.copies
            if path == self.now.directory.path or files.planned.get(number) != self.files.planned.get(number)
        ]
        if fitting and not self._is_unused(self.now.generation.number):
            self.disk.directories[self.now.directory.path] = copy.deepcopy(self.chance.choice(fitting))
        self.restart()

    def _rescale(self) -> None:
        partitions = self.chance.randint(1, 2)
        self.restart("rescale", buckets=partitions * self.chance.randint(1, 3), shuffle_partitions=partitions)

    def _add_the_partition(self) -> None:
        self.visible = len(self.log)

    def save(self) -> None:
        """Name the current position s1, s2, ..."""
        self.savepoints += 1
        with self.connection.transaction():
            writer.lock_and_check(self.connection, self._run_id)
            savepoints.create(self.connection, f"s{self.savepoints}")

    def _restore(self) -> None:
        if not self.savepoints:
            return
        name = f"s{self.chance.randint(1, self.savepoints)}"
        self.restore(name, "skip" if self.chance.random() < 0.5 else "reissue")

    def restore(self, name: str, policy: str) -> None:
        """Restore a savepoint, and note what is promised from then on."""
        done = self._done()
        if policy == "skip":
            self.restart("restore", savepoint=name, policy="skip")
            self.skips[self.now.generation.number] = done
            self.reissue = None
        else:
            floor = savepoints.get(self.connection, name).done
            self.restart("restore", savepoint=name, policy="reissue")
            self.reissue = Reissue(self.now.generation.revision, floor)

    def _die_while_opening(self) -> None:
        """Killed between the insert of a generation and its first batch: the next start uses the generation as it stands."""
        self.chance.choice([self._lose_the_checkpoint, self._rescale, self._restore])()
        number = self.now.generation.number
        if self.chance.random() < 0.5:
            self.batch(crash="before")
        self.restart()
        assert self.now.generation.number == number or not self._is_unused(number)

    def _is_unused(self, number: int) -> bool:
        rows = self.connection.execute("SELECT FROM outbox.batch WHERE generation = %s LIMIT 1", [number])
        return rows.fetchone() is None

    def _done(self) -> Offsets:
        """The greatest done of all time, read plainly."""
        rows = self.connection.execute(
            "SELECT done_offsets FROM outbox.batch UNION ALL SELECT high_water FROM outbox.generation"
        )
        done = Offsets()
        for (value,) in rows:
            done = done.max(Offsets.from_json(value))
        return done


_STEPS = (
    (History._batch, 50),
    (History._crash_before_the_commit, 7),
    (History._crash_between_the_commits, 7),
    (History._restart, 3),
    (History._lose_the_checkpoint, 6),
    (History._lose_it_between_the_commits, 4),
    (History._lose_it_twice, 5),
    (History._lose_the_newest_plan, 2),
    (History._copy_the_checkpoint, 4),
    (History._roll_the_checkpoint_back, 3),
    (History._rescale, 4),
    (History._add_the_partition, 2),
    (History.save, 6),
    (History._restore, 5),
    (History._die_while_opening, 5),
)


def sessions_written(connection: Connection) -> Iterator[tuple[int, int, int, int, int]]:
    """(generation, partition, first offset, end offset, revision) of each session in the outbox."""
    yield from connection.execute(
        """
        SELECT b.generation, s.partition, s.starts, s.ends, o.revision
        FROM outbox.session_output o JOIN outbox.batch b USING (batch_id),
             UNNEST(o.session_partitions, o.session_starts, o.session_ends) AS s (partition, starts, ends)
        """
    ).fetchall()


def _key(record: Record) -> bytes:
    """As Spark sees it: empty where the value is no JSON."""
    try:
        key: str = orjson.loads(record.value or b"")["session_key"]
    except orjson.JSONDecodeError:
        return b""
    return key.encode()


def _stream(events: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, events.schema) as stream:
        stream.write_table(events)
    return bytes(sink.getvalue())
