"""Whatever step of the job a fault hits, each output arrives once: the whole matrix (`make faults`) and a sample of it for every run."""

import shutil
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from devstack.kafka import KafkaServer
from service.lifecycle.fault_points import Action, Fault, FaultPlan
from tests.support.faults.job_cells import BEFORE_THE_STARTS_COMMIT, DRIVER, PAGE, TASK, JobCell, Situation
from tests.support.faults.matrix import HELD, Group, Matrix, MatrixRow
from tests.support.faults.state import (
    State,
    assert_nothing_half_way,
    has_told_all,
    input_ends,
    open_transactions,
    resumed_at,
)
from tests.support.pipeline.cache_damage import DELETED, OLD, bring_back, damage
from tests.support.pipeline.feed import rounds, write
from tests.support.pipeline.options import Options
from tests.support.pipeline.pipeline import Pipeline

_TIMEOUT_S = 600.0
_ROW = Fault("sink.during_copy", Action.PASS)
_BETWEEN_ATTEMPTS = Fault("start.begins", Action.HOLD)


class FaultyJob(ABC):
    """`spark-job run` of a pipeline whose settings name the plan's file."""

    name: ClassVar[str]
    """For the table."""
    action: ClassVar[Action]
    new_run: ClassVar[bool] = True
    """The fault ends the run."""

    def __init__(self, pipeline: Pipeline, plan: FaultPlan) -> None:
        self.pipeline = pipeline
        self.plan = plan
        self.settings: Mapping[str, str] = {}
        """OUTBOX_ variables of the lives to come."""

    def strike(self, point: str, hit: int, give_work: Callable[[], None], *, with_rows: bool) -> None:
        """Let the job run into one fault; return when it has happened. Starts the job where it does not run.

        `with_rows`: in a batch that writes rows. Fails unless exactly this fault fired, in the life that was meant.
        """
        runs, fired = self.pipeline.job.is_alive(), self.plan.fired()
        faults = [_ROW] if with_rows else []
        faults += self.faults(Fault(point, self.action, hit))
        self.plan.write(*faults)
        give_work()
        if not runs:  # else the fault may have ended it already
            self.start()
        pid = self.pipeline.job.pid
        self.wait_until_struck()
        now = self.plan.fired()
        assert [fault for fault, _ in now] == [*(fault for fault, _ in fired), *faults]
        assert all((by == pid) != fault.point.startswith("task.") for fault, by in now[len(fired) :])
        assert self.plan.pending() == []
        self.pipeline.wait_until(lambda: not open_transactions(self.pipeline), "the end of its transactions")

    def start(self) -> None:
        """Start the job where it does not run."""
        if not self.pipeline.job.is_alive():
            self.pipeline.job.start(**self.settings)

    def end(self) -> None:
        """End the job where it runs, as a power failure does."""
        if self.pipeline.job.is_alive():
            self.pipeline.crash()

    def recover(self) -> None:
        """Let the job continue without faults until it has dealt with its whole input."""
        ends = input_ends(self.pipeline)
        self.plan.write()
        self.start()
        self.pipeline.wait_until(
            lambda: self.pipeline.has_read_to(ends) and has_told_all(self.pipeline),
            "the end of the input",
            timeout_s=_TIMEOUT_S,
            alive=(self.pipeline.job,),
        )

    def faults(self, fault: Fault) -> list[Fault]:
        """The plan for one fault."""
        return [fault]

    @abstractmethod
    def wait_until_struck(self) -> None:
        """Return when the fault has happened, and what it hit does not move."""

    def _wait_for_the_plan(self, what: str) -> None:
        self.pipeline.wait_until(
            lambda: self.plan.pending() == [], what, timeout_s=_TIMEOUT_S, alive=(self.pipeline.job,)
        )


class KilledDriver(FaultyJob):
    """Dies of SIGKILL at the point; the next life is a new process."""

    name = "driver killed"
    action = Action.KILL

    def wait_until_struck(self) -> None:
        """Wait for the end of the process and its JVM."""
        pipeline = self.pipeline
        assert pipeline.job.wait(_TIMEOUT_S) == -signal.SIGKILL, pipeline.job.tail()
        pipeline.wait_until(pipeline.job_has_gone, "the end of the job's connections")


class FailingDriver(FaultyJob):
    """Raises at the point; the same process tries again, and stands still before its next attempt so that it can be looked at."""

    name = "driver fails"
    action = Action.RAISE

    def faults(self, fault: Fault) -> list[Fault]:
        """The fault, then a stop before the next attempt."""
        return [fault, _BETWEEN_ATTEMPTS]

    def wait_until_struck(self) -> None:
        """Wait until the next attempt stands still."""
        self._wait_for_the_plan("the next attempt")


class KilledWorker(FaultyJob):
    """A Python worker dies of SIGKILL at the point; Spark runs its task again, and the run continues."""

    name = "worker killed"
    action = Action.KILL
    new_run = False

    def wait_until_struck(self) -> None:
        """Wait for the fault; the job lives on."""
        self._wait_for_the_plan("the fault")


class FailingWorker(KilledWorker):
    """The task raises at the point."""

    name = "worker fails"
    action = Action.RAISE


class Everything(FaultyJob):
    """The machine's power fails while a task stands at the point."""

    name = "all killed there"
    action = Action.HOLD

    def wait_until_struck(self) -> None:
        """Kill the driver, its JVM and all workers at once."""
        self._wait_for_the_plan("a task that stands there")
        self.pipeline.crash()


OF_THE_DRIVER = (KilledDriver, FailingDriver)
OF_A_TASK = (KilledWorker, FailingWorker, Everything)


_GENERATIONS = 1  # place in Pipeline.written()
SESSIONS = 40  # of a feed round: more than one batch
FEW_SESSIONS = 10
SESSIONS_PER_SECOND = 10  # of event time: the first sessions end before the last ones begin


def options(plan: FaultPlan, on_timeout: str) -> Options:
    """Settings of a pipeline whose job meets the plan's faults."""
    return {
        "session": {"on_timeout": on_timeout},
        "job": {"max_events_per_batch": 300},
        "restart": {"delay_s": 0.1, "max_delay_s": 0.1},
        "testing": {"fault_file": str(plan.file)},
    }


class JobScenario:
    """One group of cells on one pipeline."""

    def __init__(
        self, pipeline: Pipeline, faulty_job: FaultyJob, group: Group, tell: Callable[[str], None], seed: int
    ) -> None:
        """`tell` gets a line for each cell."""
        self._pipeline, self._faulty_job, self._group = pipeline, faulty_job, group
        self._tell, self._seed = tell, seed
        self._old_cache = pipeline.cache.with_name("old-cache")
        self._damaged: State | None = None  # the state then, if it was since the last recovery

    def run(self, situations: Sequence[Situation]) -> None:
        """Run all cells, then ask for the whole verdict. The group's rows are those of the situations, in their order."""
        try:
            self._group.verdict = f"{HELD}: {self._run_situations(situations)}"
        except BaseException as error:
            self._group.verdict = f"FAILED: {type(error).__name__}"
            raise
        finally:
            self._tell(f"{self._group.title}: {self._group.verdict}")

    def _run_situations(self, situations: Sequence[Situation]) -> str:
        self._pipeline.publisher.start()
        self._pipeline.hold_open(6)  # so that there is always something to find again
        self._feed(SESSIONS)
        rows = iter(self._group.rows)
        if any(cell.cache == OLD for situation in situations for cell in situation.cells):
            self._faulty_job.recover()
            shutil.copytree(self._pipeline.cache, self._old_cache)
            self._feed(SESSIONS)
        for situation in situations:
            self._situation(situation, [next(rows) for _ in situation.cells])
        self._pipeline.release()
        expected = self._pipeline.expectation()
        self._pipeline.complete(expected)
        self._pipeline.stop()
        self._pipeline.assert_exactly_once(expected)
        return (
            f"{expected.sessions} sessions, {len(expected.outputs)} outputs delivered once, bytes and order as expected; "
            f"{len(expected.letters)} dead letters"
        )

    def _situation(self, situation: Situation, rows: Sequence[MatrixRow]) -> None:
        if situation.one_by_one or situation.after is not None:
            self._faulty_job.recover()
        if situation.after is not None:
            self._strike(JobCell(situation.after, with_rows=True))
        if situation.settings:
            self._faulty_job.end()
            self._faulty_job.settings = situation.settings
        for cell, row in zip(situation.cells, rows, strict=True):
            try:
                found = self._cell(cell, row)
                if situation.one_by_one or row is rows[-1]:
                    row.then = self._recovery(found)
                row.result = HELD
            except BaseException as error:
                row.result = f"FAILED: {type(error).__name__}"
                raise
            finally:
                if not row.then:
                    row.then = "the next fault hits its recovery"
                self._tell(
                    f"{row.situation}: {row.place} {row.action}: {row.found}; {row.then}: {row.result}"
                )

    def _cell(self, cell: JobCell, row: MatrixRow) -> State:
        """Let the fault happen and judge what it left."""
        if cell.cache:
            self._damage(cell.cache)
        before, written = State.read(self._pipeline), self._pipeline.written()
        found = self._strike(cell)
        kind = found.kind(before)
        row.found = str(kind)
        assert_nothing_half_way(self._pipeline)
        assert kind == cell.leaves, f"{before} became {found}"
        assert found.generation == before.generation + cell.opens, f"{before} became {found}"
        if cell.point.startswith("start."):
            assert _but_generations(self._pipeline.written()) == _but_generations(written)
        if cell.point in BEFORE_THE_STARTS_COMMIT:
            assert found.runs == before.runs
        return found

    def _damage(self, how: str) -> None:
        self._faulty_job.end()
        if how == OLD:
            bring_back(self._pipeline.cache, self._old_cache)
        elif how == DELETED:
            self._pipeline.lose_cache()
        else:
            damage(self._pipeline.cache, how)
        self._damaged = State.read(self._pipeline)

    def _strike(self, cell: JobCell) -> State:
        # Starts take no batch: their work piles up until a later cell's batches.
        sessions = FEW_SESSIONS if cell.point.startswith("start.") else SESSIONS
        self._faulty_job.strike(cell.point, cell.hit, lambda: self._feed(sessions), with_rows=cell.with_rows)
        return State.read(self._pipeline)

    def _feed(self, sessions: int) -> None:
        self._seed += 1
        events = rounds(self._seed, sessions, SESSIONS_PER_SECOND, 1)
        write(self._pipeline.bootstrap, self._pipeline.input, events)

    def _recovery(self, found: State) -> str:
        """Let the job recover and judge what it made of what the fault had left; return that for the table."""
        self._faulty_job.recover()
        now = State.read(self._pipeline)
        assert_nothing_half_way(self._pipeline)
        assert now.unheard == found.unheard, f"{found} became {now}"
        assert now.generation == max(1, found.generation), f"{found} became {now}"
        again = sum(now.rebuilt[len(found.rebuilt) :])
        if self._damaged is None:
            assert not again, f"{again} events were read again, though the cache was as the job had left it"
        elif found.unheard == self._damaged.unheard:  # else the batch that found them again was not reported
            assert len(now.rebuilt) > len(self._damaged.rebuilt), (
                f"nothing was read again: {found} became {now}"
            )
        self._damaged = None
        opened = f"{again} events read again" if again else "nothing read again"
        if not self._faulty_job.new_run:
            assert now.runs == found.runs, f"{found} became {now}"
            return f"the run went on; {opened}"
        assert now.runs == found.runs + 1, f"{found} became {now}"
        if found.end:
            assert resumed_at(self._pipeline, found.runs) == found.end
        return f"run {now.runs} began where the ledger ended; {opened}"


def _but_generations(written: list[Any]) -> list[Any]:
    """All that a job writes but the rows of outbox.generation: a start may add one."""
    (parts,) = written
    return [part for number, part in enumerate(parts) if number != _GENERATIONS]


GROUPS = [(title, faulty_job) for title in DRIVER for faulty_job in OF_THE_DRIVER] + [
    (title, faulty_job) for title in TASK for faulty_job in OF_A_TASK
]
# tests/acceptance/exactly_once/test_kill_loops.py kills the driver.
SAMPLE = Situation("a sample", (JobCell("task.during_rebuild", cache=DELETED),), one_by_one=True)


@pytest.fixture
def faulty(
    faulty_job: type[FaultyJob], database: str, kafka: KafkaServer, topic_prefix: str, tmp_path: Path
) -> Iterator[tuple[Pipeline, FaultPlan]]:
    """A pipeline whose job meets the faults of a plan. Where its tasks meet them, sessions that time out are emitted."""
    plan = FaultPlan(tmp_path / "faults.json")
    of = options(plan, "emit" if faulty_job in OF_A_TASK else "dead_letter")
    with Pipeline(database, kafka.bootstrap_servers, topic_prefix, tmp_path, options=of) as made:
        yield made, plan


@pytest.mark.guarantee(21, 25, 55)
@pytest.mark.faults
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize(("title", "faulty_job"), GROUPS)
def test_a_fault_at_any_step_loses_and_repeats_nothing(
    faulty: tuple[Pipeline, FaultPlan],
    matrix: Matrix,
    tell: Callable[[str], None],
    title: str,
    faulty_job: type[FaultyJob],
) -> None:
    pipeline, plan = faulty
    situations = (DRIVER | TASK)[title]
    rows = [row for situation in situations for row in situation.rows(faulty_job.name)]
    group = matrix.declare(f"{title}, {faulty_job.name}", rows)
    JobScenario(pipeline, faulty_job(pipeline, plan), group, tell, seed=1_000).run(situations)


@pytest.mark.guarantee(21)
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("faulty_job", [KilledWorker])
def test_a_killed_worker_loses_and_repeats_nothing(
    faulty: tuple[Pipeline, FaultPlan], faulty_job: type[FaultyJob]
) -> None:
    pipeline, plan = faulty
    group = Matrix(PAGE).declare(SAMPLE.title, SAMPLE.rows(faulty_job.name))
    JobScenario(pipeline, faulty_job(pipeline, plan), group, print, seed=2_000).run([SAMPLE])
