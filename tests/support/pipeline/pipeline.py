"""The whole product on one database and its own topics: both services as processes, consumers that watch, and the verdict."""

import json
import operator
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import reduce
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg
from confluent_kafka.admin import AdminClient

from devstack.topics import create_topics
from service.lifecycle.fault_points import Action, Fault, FaultPlan
from service.settings import SessionSettings
from tests.support.pipeline import verdict
from tests.support.pipeline.expectation import WHOLE, Expectation, Share, expect, read_topic
from tests.support.pipeline.feed import Feeder, ends_of, rounds, starts_of, write
from tests.support.pipeline.options import LANES, Options, environment, small
from tests.support.pipeline.transforms import CARTS, INPUT, PAGES
from tests.support.processes.commands import run_command, start_command
from tests.support.processes.service import Service, while_alive
from tests.support.reading import end_offsets
from tests.support.reference.model import Record
from tests.support.servers.input_topic import InputTopic
from tests.support.waiting import wait_until
from tests.support.watching import Watcher

PARTITIONS = 3
COMPLETION_TIMEOUT_S = 900.0
WAIT_S = 400.0
"""Less than a test may last, or nobody would see the logs and stacks that a wait ends with."""
_REBUILT = re.compile(r"open_sessions_rebuilt\b.*?\bevents=(\d+)")


class Pipeline:
    """Topics, both services, and consumers of the output topics that watch from the start on. Use `with`."""

    def __init__(
        self,
        dsn: str,
        bootstrap: str,
        prefix: str,
        folder: Path,
        *,
        options: Options | None = None,
        reads: str = "",
        partitions: int = PARTITIONS,
    ) -> None:
        """`options`: settings {section: {key: value}} beside those below. `reads`: another one's input topic; empty: one of its own.

        `partitions`: of the input topic.
        """
        self.dsn = dsn
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        self.prefix = prefix
        self.input = reads or prefix + INPUT
        self.outputs = [prefix + PAGES, prefix + CARTS]
        self.input_topic = InputTopic(bootstrap, self.input, partitions)
        self.cache = folder / "cache"
        self.faults = FaultPlan(folder / "faults.json")
        self.armed = {"OUTBOX_TESTING__FAULT_FILE": str(self.faults.file)}
        """Settings of a life that follows the plan in `faults`. Refused for a database whose name does not begin with `test_`."""
        self.options = small(dsn, bootstrap, prefix, self.input, self.cache, options or {})
        # Killed processes tidy nothing up: what they leave lies in a folder of the test's own, whose path is short enough for sockets.
        self.scratch = Path(tempfile.mkdtemp(prefix="outbox-"))
        settings = environment(self.options)
        self.variables = settings | {
            "TMPDIR": str(self.scratch),
            "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={self.scratch} -XX:TieredStopAtLevel=1",
        }
        """The environment of both services and of their commands."""
        self._folder = folder
        self._records: dict[tuple[str, int, int], Record] = {}
        self._held: list[str] = []
        self._jobs: list[Service] = []
        self.job = self.another_job()
        self.publisher = Service("publisher", self.variables, folder / "publisher.log")
        inputs: dict[str, tuple[int, dict[str, str]]] = {} if reads else {self.input: (partitions, {})}
        create_topics(bootstrap, inputs | {topic: (PARTITIONS, {}) for topic in self.outputs})
        self.watcher = Watcher(bootstrap, *self.outputs)
        self._cleanup = ExitStack()
        self._connection: psycopg.Connection[Any] | None = None

    def __enter__(self) -> Self:
        with ExitStack() as cleanup:
            cleanup.callback(shutil.rmtree, self.scratch, ignore_errors=True)
            self.connect()
            cleanup.callback(self.disconnect)
            cleanup.enter_context(self.watcher)
            cleanup.callback(self.publisher.destroy)
            cleanup.callback(self._destroy_jobs)
            self._cleanup = cleanup.pop_all()
        return self

    def connect(self) -> None:
        """Open the connection on which `ask` asks; again after Postgres was restarted, failed over or replaced."""
        if self._connection is not None:
            self._connection.close()
        self._connection = psycopg.connect(self.dsn, autocommit=True, application_name=verdict.OBSERVER)

    def disconnect(self) -> None:
        """Close it, so that the database can be copied, dropped or replaced."""
        assert self._connection is not None
        self._connection.close()

    def another_job(self) -> Service:
        """A further `spark-job run` with the same settings; `self.job` is the one that should be working."""
        job = Service("spark_job", self.variables, self._folder / f"spark-job-{len(self._jobs)}.log")
        self._jobs.append(job)
        return job

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            for service in (*self._jobs, self.publisher):
                print(service.tail())
        self._cleanup.close()

    def _destroy_jobs(self) -> None:
        for job in self._jobs:
            job.destroy()

    # Commands

    def begin(self, *arguments: str, **settings: str) -> subprocess.Popen[str]:
        """Start `spark-job <arguments>` with nobody at the terminal; `settings` are OUTBOX_ variables of this command only."""
        return start_command("spark_job", *arguments, variables=self.variables | settings)

    def command(self, *arguments: str, code: int = 0, **settings: str) -> str:
        """Run `spark-job <arguments>`; return what it printed, or where it must fail its explanation."""
        done = run_command(
            "spark_job", *arguments, variables=self.variables | settings, timeout_s=COMPLETION_TIMEOUT_S
        )
        assert done.returncode == code, (
            f"{arguments}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        )
        return done.stderr if code else done.stdout

    def command_json(self, *arguments: str, **settings: str) -> Any:
        """Run it with --json and read that."""
        return json.loads(self.command(*arguments, "--json", code=0, **settings))

    # Input

    def feed(self, seed: int, *, sessions: int, number: int = 1) -> None:
        """Write `number` rounds of `sessions` sessions at once; the keys of a round come again in the next."""
        write(self.bootstrap, self.input, rounds(seed, sessions, 100, number))

    def hold_open(self, sessions: int) -> None:
        """Begin more sessions that stay open, whatever comes after them, until `release`: reading begins there after a loss."""
        begun = [f"held-{len(self._held) + n}" for n in range(sessions)]
        self._held += begun
        write(self.bootstrap, self.input, starts_of(begun))

    def release(self) -> None:
        """End the sessions that were held open."""
        write(self.bootstrap, self.input, ends_of(self._held))
        self._held = []

    @contextmanager
    def load(self, seed: int, *, sessions_per_second: float) -> Iterator[Feeder]:
        """Write rounds of ten seconds in the background, until the block ends."""
        endless = rounds(seed, int(sessions_per_second * 10), sessions_per_second)
        with Feeder(self.bootstrap, self.input, endless) as feeder:
            yield feeder

    @contextmanager
    def held_up_batch(self) -> Iterator[int]:
        """Within the block a batch has all its rows in an open transaction, which waits to write its ledger row; yield its backend."""
        with psycopg.connect(self.dsn) as blocker:
            blocker.execute("LOCK TABLE outbox.batch IN SHARE MODE")
            found: list[tuple[int]] = []

            def waits() -> bool:
                found[:] = self.ask(
                    "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
                    " AND application_name = 'spark-job' AND wait_event_type = 'Lock'",
                )
                return bool(found)

            self.wait_until(waits, "a batch that waits to write its ledger row", alive=(self.job,))
            yield found[0][0]

    @contextmanager
    def held_at(self, point: str, *, hit: int = 1, start: Callable[[], None] | None = None) -> Iterator[None]:
        """Within the block the job stands still at a fault point, one that it reaches from now on. It must have been started with `armed`.

        `start`: what brings it there.
        """
        fired, fault = len(self.faults.fired()), Fault(point, Action.HOLD, hit)
        self.faults.write(fault)
        try:
            if start is not None:
                start()
            self.wait_until(lambda: len(self.faults.fired()) > fired, f"a job at {point}", alive=(self.job,))
            yield
        finally:
            self.faults.write()

    # Where it is

    def ask(self, sql: str, *parameters: object) -> list[Any]:
        """Return the rows of one query, over a connection that is open already: quick enough to catch a moment."""
        assert self._connection is not None
        return self._connection.execute(sql, parameters).fetchall()

    def wait_until(
        self,
        condition: Callable[[], object],
        what: str,
        *,
        timeout_s: float = WAIT_S,
        poll_s: float = 0.1,
        alive: tuple[Service, ...] = (),
    ) -> None:
        """Return once `condition` holds; fail when it does not, or when one of `alive` ends before.

        `poll_s`: most conditions ask Postgres, some Kafka too, while Spark starts on the same cores.
        """
        wait_until(
            while_alive(condition, what, alive),
            lambda: f"{what}\n{self.ledger_end()}\n{self.job.post_mortem()}\n{self.publisher.post_mortem()}",
            timeout_s=timeout_s,
            poll_s=poll_s,
        )

    def owner(self) -> int | None:
        """Pid of the run that owns the outbox."""
        pid = self.ask("SELECT pid FROM outbox.writer")[0][0]
        assert pid is None or isinstance(pid, int)
        return pid

    def owns(self, job: Service) -> bool:
        """Whether this job has taken the outbox."""
        return self.owner() == job.pid

    def batches(self) -> int:
        """Newest batch of the ledger."""
        return int(self.ask("SELECT coalesce(max(batch_id), 0) FROM outbox.batch")[0][0])

    def more_batches(self, number: int) -> None:
        """Wait until the job has committed some batches more."""
        enough = self.batches() + number
        self.wait_until(lambda: self.batches() >= enough, f"{number} more batches", alive=(self.job,))

    def wait_for_dead_owner(self) -> None:
        """Wait until the owner's heartbeat is so old that another run may take over."""
        self.wait_until(
            lambda: self.ask(
                "SELECT heartbeat_at < clock_timestamp() - %s * interval '1 s' FROM outbox.writer",
                self.options["job"]["owner_timeout_s"],
            )[0][0],
            "an owner without heartbeat",
        )

    def written(self) -> list[Any]:
        """Everything that a job writes but its heartbeat: to compare before and after."""
        return self.ask(
            "SELECT (SELECT jsonb_agg(b ORDER BY b.batch_id) FROM outbox.batch b),"
            " (SELECT jsonb_agg(g) FROM outbox.generation g), (SELECT count(*) FROM outbox.session_output),"
            " (SELECT count(*) FROM outbox.dead_letter)",
        )

    def ledger_end(self) -> dict[int, int]:
        """{partition: offset} up to which the ledger has dealt with the input; empty before the first batch."""
        rows = self.ask(
            "SELECT end_offsets FROM outbox.batch WHERE kind = 'stream' ORDER BY batch_id DESC LIMIT 1"
        )
        found = rows[0][0].get(self.input_topic.id(), {}) if rows else {}
        return {int(partition): end for partition, end in found.items()}

    def lose_cache(self) -> None:
        """Delete the open sessions that the job's workers keep."""
        shutil.rmtree(self.cache, ignore_errors=True)

    def generations(self) -> list[tuple[int, str, int]]:
        """(number, reason, revision) of every generation."""
        return self.ask("SELECT generation, reason, revision FROM outbox.generation ORDER BY generation")

    def restored(self) -> list[str]:
        """How each start of the job found itself, oldest first."""
        return [row[0] for row in self.ask("SELECT restored FROM outbox.run ORDER BY started_at")]

    def start_and_see(self, restored: str, **settings: str) -> None:
        """Start the job, and return when it has found itself so and has committed a batch."""
        starts = len(self.restored())
        self.job.start(**settings)
        self.wait_until(
            lambda: self.ask(
                "SELECT FROM outbox.batch WHERE run_id = (SELECT run_id FROM outbox.run ORDER BY started_at OFFSET %s LIMIT 1)",
                starts,
            ),
            "a batch of the new start",
            alive=(self.job,),
        )
        assert self.restored()[starts:] == [restored]

    def refused(self, **settings: str) -> str:
        """Start the job, which must stop for a person's word and write nothing; return what it says."""
        before, printed = self.written(), len(self.job.log())
        self.job.start(**settings)
        assert self.job.wait(timeout_s=900) == 5, self.job.tail()
        assert self.written() == before
        return self.job.log()[printed:]

    def restarts(self) -> list[str]:
        """The causes of the restarts that the job has logged: names of errors."""
        lines = [line for line in self.job.log().splitlines() if "job_restarting" in line]
        return [line.partition("because=")[2].strip("'\"").partition(":")[0] for line in lines]

    def rebuilt(self) -> list[int]:
        """Events that were read again, of each batch for which that was needed, in all lives of the job."""
        return [int(found) for found in _REBUILT.findall(self.job.log())]

    def wait_for_report(self) -> None:
        """Wait until the job has logged all that it says of the newest batch: it commits first."""
        newest = self.ask("SELECT max(batch_id) FROM outbox.batch WHERE kind = 'stream'")[0][0]
        line = re.compile(rf"batch_committed\b.*?\bbatch={newest}\b")
        self.wait_until(
            lambda: line.search(self.job.log()), f"the report of batch {newest}", alive=(self.job,)
        )

    def status(self) -> dict[str, Any]:
        """What `spark-job status --json` says, whether a job is alive or not."""
        with self.begin("status", "--json") as process:
            shown: dict[str, Any] = json.loads(process.communicate(timeout=300)[0])
        return shown

    def crash(self) -> None:
        """Kill the job as a power failure does, and wait until Postgres knows."""
        self.job.crash()
        self.wait_until(self.job_has_gone, "the end of the job's connections")

    def job_has_gone(self) -> bool:
        """Whether Postgres has ended the job's connections, so that nothing is half way any more."""
        found = self.ask(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'spark-job%%'",
        )
        return found == [(0,)]

    # The end

    def expectation(self, *shares: Share, of_what_is_left: bool = False) -> Expectation:
        """What must come out of the input as it is now. What an earlier call has seen counts although it was deleted meanwhile.

        `shares`: by revision, where something was reissued. `of_what_is_left`: as if nothing had been there that Kafka has deleted.
        """
        topic_id = self.input_topic.id()
        now = read_topic(self.bootstrap, self.input)
        self._records |= {(topic_id, record.source, record.offset): record for record in now}
        ever = [record for (its_topic, *_), record in self._records.items() if its_topic == topic_id]
        records = now if of_what_is_left else ever
        session = SessionSettings(**self.options["session"])
        parts = [expect(records, self.input, topic_id, session, share) for share in shares or (WHOLE,)]
        return reduce(operator.add, parts)

    def complete(self, expected: Expectation) -> None:
        """Wait until the job has dealt with the whole input, and each lane with the whole ledger."""
        self.wait_for_input(expected)
        self.wait_until(
            lambda: self.ask(
                "SELECT count(*) = %s FROM outbox.lane WHERE cursor_key IS NULL"
                " AND cursor_batch = (SELECT max(batch_id) FROM outbox.batch)",
                LANES,
            )[0][0],
            "the delivery of all batches",
            timeout_s=COMPLETION_TIMEOUT_S,
            alive=(self.publisher,),
        )

    def wait_for_input(self, expected: Expectation) -> None:
        """Wait until the job has dealt with the whole input."""
        self.wait_until(
            lambda: self.has_read_to(expected.ends),
            "the end of the input",
            timeout_s=COMPLETION_TIMEOUT_S,
            alive=(self.job,),
        )

    def has_read_to(self, ends: dict[int, int]) -> bool:
        """Whether the ledger has dealt with the input up to there ({partition: offset})."""
        end = self.ledger_end()
        return all(end.get(partition, 0) >= wanted for partition, wanted in ends.items())

    def stop(self) -> None:
        """SIGTERM to both services; they must end in order and leave nothing held."""
        assert self.job.terminate() == 0, self.job.tail()
        assert self.publisher.terminate() == 0, self.publisher.tail()
        verdict.assert_nothing_held(self.dsn)

    def assert_exactly_once(self, expected: Expectation) -> None:
        """Assert all that must hold after every fault. Both services are stopped, everything is delivered."""
        verdict.assert_no_open_transaction(self.bootstrap, [*self.outputs, self.progress_topic()])
        ends = end_offsets(self.bootstrap, self.outputs, committed=True)
        self.wait_until(lambda: self.watcher.has_read_to(ends), "reading the output topics to their ends")
        verdict.assert_delivered(expected, self.watcher.seen)
        verdict.assert_outbox(self.dsn, expected)
        verdict.assert_ledger_agrees(self.dsn)
        verdict.assert_delivery_agrees(self.dsn)

    def finish(self, *shares: Share) -> Expectation:
        """Let all of the input come out, stop both services, and assert that each output came once."""
        expected = self.expectation(*shares)
        self.complete(expected)
        self.stop()
        self.assert_exactly_once(expected)
        return expected

    def progress_topic(self) -> str:
        """Name of the publisher's progress topic."""
        ((outbox_uuid,),) = self.ask("SELECT outbox_uuid FROM outbox.identity")
        return f"outbox-progress-{outbox_uuid}"
