"""How a job meets a fault and continues: killed, in a life of its own for each; failing, when the restart strategy brings it back; or in a
worker, when Spark gives the task to another one."""

import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar

from service.lifecycle.fault_points import Action, Fault, FaultPlan
from tests.support.faults.state import has_told_all, input_ends, open_transactions
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
