"""The life of one outbox, step by step: steps.py has the steps.

All code is the job's own except Spark (spark_stand_in.py) and Kafka (random_log.py): the start, the slices, the tasks, the sink and its
transaction, on a real Postgres. What must come of it is told beside it (expected_outbox.py).
"""

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import dict_row
from pyspark import SparkConf

from service.errors import ContinuityError
from service.lifecycle import fault_points
from service.lifecycle.fault_points import Action, Fault, FaultPlan, InjectedFaultError
from service.settings import JobSettings, Settings
from spark_job import OutputEvent, Session
from spark_job.assembly import rebuild, task
from spark_job.input.offsets import Offsets
from spark_job.job import task_settings
from spark_job.ledger import ownership, requests, runs
from spark_job.ledger.assembly_rules import applied_rules, stored_rules
from spark_job.ledger.requests import JobRequest
from spark_job.monitoring.health import JobHealth
from spark_job.outputs import transform
from spark_job.recovery import outbox_behind
from spark_job.recovery.findings import AcceptedRisks
from spark_job.recovery.outbox_behind import Delivered
from spark_job.recovery.start import RequestRefusedError, Start, Started
from spark_job.sessions.settings import AssemblySettings
from spark_job.sink.backpressure import Backpressure
from spark_job.sink.commit import Sink
from spark_job.sink.computed_batch import ResultReader
from spark_job.stream.batches import RunContext
from tests.support.histories.expected_outbox import ExpectedOutbox, Place, Places, as_offsets
from tests.support.histories.random_log import TOPIC, RandomLog
from tests.support.histories.spark_stand_in import Frame, MemoryLoop

Connection = psycopg.Connection[Any]
Row = dict[str, Any]
SessionWritten = tuple[int, int, tuple[str, int], str, int, int, tuple[bytes, ...]]
"""(generation, revision, (topic id, partition), key, first offset, end offset, values)"""

MAX_ROW_BYTES = 1_024
_FUNCTION = "tests.support.histories.history:outputs"
_AT_ONCE = (0, 1, 3, 8, 30)


def outputs(session: Session) -> list[OutputEvent]:
    """The transform: what it returns depends on every event of the session, and it fails for some."""
    offsets, raws = [event.offset for event in session.events], [event.raw for event in session.events]
    return values_of(session.key, offsets, raws, f"part {session.part}, {session.ended_by}")


def values_of(key: str, offsets: list[int], raws: list[bytes], how: str) -> list[OutputEvent]:
    """Its outputs; `how`: the number of the part, and what ended it. Raises where it fails."""
    if b'"body":1}' in raws[-1]:
        raise ValueError(f"no luck with {key}")
    return [OutputEvent("out", f"{key} {offsets} {raws}".encode()), OutputEvent("out", {"how": how})]


FINGERPRINT = transform.fingerprint(outputs)


def settings(
    timeout_s: int = 60,
    max_events: int = 5,
    on_timeout: str = "dead_letter",
    *,
    only_silence: bool = False,
    clock_records: bool = False,
) -> Settings:
    """Short sessions; the transform is `outputs`. `only_silence`: any event opens a session, and no event ends one."""
    session = {"timeout_s": timeout_s, "grace_s": 20, "max_events": max_events, "on_timeout": on_timeout}
    session |= {"clock_records": clock_records}
    session |= {"start": "", "entry": "*", "end": ""} if only_silence else {}
    return Settings.model_validate(
        {
            "postgres": {"dsn": "postgresql://localhost/unused"},
            "kafka": {"bootstrap_servers": "unused:9092"},
            "source": {"topics": [TOPIC]},
            "session": session,
            "transform": {"function": _FUNCTION},
            "job": {"max_events_per_batch": 64, "max_row_bytes": MAX_ROW_BYTES},
        }
    )


def cut_into_small_pieces(patch: pytest.MonkeyPatch) -> None:
    """Small pieces, so that what is cut is cut."""
    patch.setattr(rebuild, "PIECE_EVENTS", 7)
    patch.setattr(task, "PIECE_BYTES", 900)


@dataclass
class Process:
    """A job that runs."""

    connection: Connection
    run_id: UUID
    started: Started
    loop: MemoryLoop

    @property
    def sink(self) -> Sink:
        return self.loop.sink


class History:
    """The life of one outbox. `steps.run_history` makes it; the tables then hold what came of it, and `expected` what must have."""

    def __init__(self, dsn: str, folder: Path, seed: int, patch: pytest.MonkeyPatch) -> None:
        self.chance = random.Random(seed)
        self.dsn = dsn
        clocked = seed % 7 == 0
        self.log = RandomLog(self.chance, clocked)
        self.settings = settings(
            on_timeout="emit" if seed % 2 else "dead_letter",
            only_silence=seed % 4 == 3,
            clock_records=clocked,
        )
        self.expected = ExpectedOutbox()
        self.disks = [folder / "disk-0", folder / "disk-1"]
        self.steps: list[str] = []
        self.folder = folder
        folder.mkdir()
        self._faults = FaultPlan(folder / "faults.json")
        self.former: tuple[UUID, ...] = ()
        self._connections: list[Connection] = []
        self._accepted = AcceptedRisks()
        self.observer = self.connect()
        patch.setattr(rebuild, "committed_records", lambda *given: self.log.committed_records(*given))
        patch.setattr(outbox_behind, "newest_delivered", lambda _settings, _uuid: self._delivered())
        self.process: Process

    def begin(self) -> None:
        """The first start."""
        self.expected.open(self.named({}), self.rules, 0)
        self.process = self.start()

    def close(self) -> None:
        """Let nothing be left of it."""
        fault_points.arm(None)
        for connection in self._connections:
            connection.close()

    def finish(self) -> None:
        """Read all that is there."""
        self.log.visible = len(self.log.partitions)
        while self.process.loop.read_to != self.log.latest:
            self.batch(10)

    def sessions_written(self) -> Iterator[SessionWritten]:
        """Each session in the outbox."""
        rows = self.observer.execute(
            """
            SELECT b.generation, o.revision, o.session_key, o.session_topic_ids, o.session_partitions, o.session_starts,
                o.session_ends, o.session_outputs, o."values"
            FROM outbox.session_output o JOIN outbox.batch b USING (batch_id)
            """
        )
        for generation, revision, key, *columns, counts, values in rows:
            at = 0
            for topic_id, partition, first, end, count in zip(*columns, counts, strict=True):
                outputs = tuple(values[at : at + count])
                yield generation, revision, (topic_id, partition), key, first, end, outputs
                at += count

    def letters_written(self) -> list[Row]:
        """Each letter."""
        with self.observer.cursor(row_factory=dict_row) as cursor:
            return cursor.execute("SELECT * FROM outbox.dead_letter ORDER BY dead_letter_id").fetchall()

    # What the job does

    def batch(self, most: int | None = None) -> None:
        """One micro-batch."""
        frame = self.frame(most)
        self.process.loop.batch(frame)
        self.note(frame.ends)

    def note(self, ends: Offsets) -> None:
        logs = {self.log.where(p): self.log.partitions[p].log for p in range(self.log.visible)}
        self.expected.read_to(ends, logs)

    def frame(self, most: int | None = None) -> Frame:
        loop = self.process.loop
        start, left = loop.read_to, loop.max_events
        ends = {}
        for where, latest in self.log.latest.items():
            wanted = self.chance.choice(_AT_ONCE) if most is None else most
            ends[where] = min(latest, start.at(where) + min(wanted, left))
            left -= ends[where] - start.at(where)
        return Frame(self.log, start, Offsets(ends), self.chance, self.disks, loop.columns)

    def restart(self, request: JobRequest | None = None, *, killed: bool = True) -> None:
        """The process ends, and another starts. `killed`: without a word."""
        if not killed:
            ownership.give_back(self.process.connection, self.process.run_id)
            runs.end(self.process.connection, self.process.run_id, runs.STOPPED)
        self.end(self.process.connection)
        self.process = self.start(request)

    def end(self, connection: Connection) -> None:
        """End a process; Postgres sees it a moment later."""
        pid = connection.info.backend_pid
        connection.close()
        while (
            self.observer.execute("SELECT FROM pg_stat_activity WHERE pid = %s", [pid]).fetchone() is not None
        ):
            pass

    def start(self, request: JobRequest | None = None, *, take_over: bool = False) -> Process:
        connection, run_id = self.connect(), uuid4()
        topics = self.log.describe()
        begin = Start(self.settings, run_id, 1, FINGERPRINT, self._accepted, take_over, request, self.former)
        kafka: Any = self.log
        try:
            started = begin.run(connection, kafka, topics)
        except BaseException:
            self.end(connection)
            raise
        accepted, self._accepted, self.former = self._accepted, AcceptedRisks(), ()
        sink = Sink(
            connection,
            started.position,
            run_id=run_id,
            transform_fingerprint=FINGERPRINT,
            max_row_bytes=MAX_ROW_BYTES,
        )
        reader = ResultReader(started.position, lambda: self.log.describe_unchanged(topics))
        told = task_settings(self.settings, started.outbox_uuid, FINGERPRINT)
        resumes_at = started.begun.resumes_at
        accept_at = resumes_at if accepted.data_loss else Offsets()
        nothing: Any = None
        spark: Any = _Spark()
        free = Backpressure(
            connection, run_id, JobSettings(max_backlog_events=0, max_backlog_bytes=0), JobHealth()
        )
        run = RunContext(
            run_id, self.settings, spark, nothing, topics, told, reader, sink, kafka, free, accept_at
        )
        loop = MemoryLoop(run, resumes_at, started.size)
        self._check_start(started)
        return Process(connection, run_id, started, loop)

    def _check_start(self, started: Started) -> None:
        """It begins where the outbox must be, with what is open there."""
        now = self.named(self.expected.now.position)
        assert started.begun.resumes_at == as_offsets(now)
        assert started.position.generation.number == len(self.expected.generations)
        assert started.position.generation.revision == self.expected.now.revision
        for where, place in now.items():
            if where in started.position.end:
                safe, opened = started.position.safe(where), started.position.open.get(where)
                is_known = opened is None or opened.digest is not None
                assert safe == place.safe if is_known else safe <= place.safe

    def named(self, places: Places) -> Places:
        """These places, and the beginning of every partition that they do not name."""
        begin = {}
        for where, earliest in self.log.earliest.items():
            log = self.log.partitions[where.partition].log
            begin[where] = Place(log, earliest, earliest, ((0, self.rules),))
        return {
            where: place for where, place in (begin | places).items() if where.topic_id == self.log.topic_id
        }

    @property
    def rules(self) -> AssemblySettings:
        return applied_rules(stored_rules(self.settings)).rules

    def connect(self) -> Connection:
        made = psycopg.connect(self.dsn, autocommit=True, options="-c role=outbox_writer")
        self._connections.append(made)
        return made

    def _delivered(self) -> list[Delivered]:
        """The publisher is as far as it can be."""
        query = "SELECT batch_id, commit_id FROM outbox.batch ORDER BY batch_id DESC LIMIT 1"
        return [Delivered(*row) for row in self.observer.execute(query)]

    def count(self, table: str) -> int:
        query = sql.SQL("SELECT count(*) FROM outbox.{}").format(sql.Identifier(table))
        (number,) = self.observer.execute(query).fetchone() or (0,)
        return int(number)

    # What ends a process, or makes one begin

    def fails(self, points: Sequence[str], act: Callable[[], None]) -> bool:
        """Let it fail at one of these points. Return False where it did not get there, and was done."""
        fault_points.arm(self._faults.file)
        self._faults.write(Fault(self.chance.choice(points), Action.RAISE, self.chance.choice([1, 1, 2])))
        try:
            act()
        except InjectedFaultError:
            return True
        finally:
            fault_points.arm(None)
        return False

    def start_again(self) -> None:
        """After the end of the process."""
        self.process = self.start()

    def open_by_flags(self, flags: set[str], places: Places, revision: int) -> None:
        """The next start does not continue by itself, and writes nothing before a person's word."""
        self.end(self.process.connection)
        before = self.count("generation"), self.count("run")
        with pytest.raises(ContinuityError) as refused:
            self.start()
        assert flags_in(refused.value) == flags
        assert (self.count("generation"), self.count("run")) == before
        assert ownership.read_owner(self.observer).run_id == self.process.run_id
        self.expected.open(self.named(places), self.rules, revision)
        self._accepted = AcceptedRisks(**dict.fromkeys(map(_name, flags), True))
        self.start_again()

    def open_by_request(
        self, arguments: Mapping[str, Any], flags: set[str], places: Places, revision: int
    ) -> None:
        """What a command asks of the running job needs the same word."""
        if flags:
            with pytest.raises(RequestRefusedError) as refused:
                self.ask(arguments)
            assert flags_in(refused.value) == flags
            self.start_again()
        self.expected.open(self.named(places), self.rules, revision)
        self.ask({**arguments, **{f"accept_{_name(flag)}": True for flag in flags}})

    def ask(self, arguments: Mapping[str, Any]) -> None:
        """Let the job do it between two batches. Raises RequestRefusedError; the job continues then with another start."""
        number = requests.ask(self.observer, self.process.run_id, "restore", arguments)
        self.restart(JobRequest(number, self.process.run_id, "restore", dict(arguments)), killed=False)


def flags_in(error: BaseException) -> set[str]:
    """The flags that a refusal names."""
    return set(re.findall("--accept-[a-z-]*[a-z]", str(error)))


def _name(flag: str) -> str:
    return flag.removeprefix("--accept-").replace("-", "_")


class _Spark:
    """As much of a SparkSession as the loop asks for."""

    class sparkContext:  # noqa: N801 - Spark's name
        master = "local[2]"
        defaultParallelism = 2  # noqa: N815 - Spark's name
        getConf = SparkConf  # noqa: N815 - Spark's name
