"""How a job meets a fault and goes on: killed, in a life of its own for each; or failing, when the restart strategy brings it back."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

from db.fault_points import Action, Fault, Plan
from tests.acceptance.pipeline import Pipeline
from tests.faults.state import input_ends, is_caught_up, open_transactions

_TIMEOUT_S = 600.0
_KILLED = 256 - 9  # what the guardian makes of SIGKILL
_ROW = Fault("sink.during_copy", Action.PASS)
_BETWEEN_ATTEMPTS = Fault("start.begins", Action.HOLD)


class Victim(ABC):
    """`job run` of a pipeline whose settings name the plan's file."""

    action: ClassVar[Action]

    def __init__(self, pipeline: Pipeline, plan: Plan) -> None:
        self.pipeline = pipeline
        self.plan = plan

    def strike(self, point: str, hit: int, give_work: Callable[[], None], *, with_rows: bool) -> None:
        """Let the job run into one fault; return when it stands or lies there. Starts the job where it does not run.

        `with_rows`: in a batch that writes rows. Fails unless exactly this fault fired, in the life that was meant.
        """
        fired = self.plan.fired()
        faults = [_ROW] if with_rows else []
        faults += self.faults(Fault(point, self.action, hit))
        self.plan.write(*faults)
        give_work()
        if not self.pipeline.job.is_alive():
            self.pipeline.job.start()
        pid = self.pipeline.job.pid
        self.wait_until_struck()
        assert self.plan.fired() == [*fired, *((fault, pid) for fault in faults)]
        assert self.plan.pending() == []
        self.pipeline.wait_until(lambda: not open_transactions(self.pipeline), "the end of its transactions")

    def recover(self) -> None:
        """Let the job go on without faults until it has dealt with its whole input."""
        ends = input_ends(self.pipeline)
        self.plan.write()
        if not self.pipeline.job.is_alive():
            self.pipeline.job.start()
        self.pipeline.wait_until(
            lambda: is_caught_up(self.pipeline, ends),
            "the end of the input",
            timeout_s=_TIMEOUT_S,
            alive=(self.pipeline.job,),
        )

    def stands_still(self) -> bool:
        """Whether nothing of the job moves: it is dead, or held between two attempts."""
        fired = self.plan.fired()
        return not self.pipeline.job.is_alive() or (
            fired[-1:] == [(_BETWEEN_ATTEMPTS, self.pipeline.job.pid)]
        )

    @abstractmethod
    def faults(self, fault: Fault) -> list[Fault]:
        """The plan for one fault."""

    @abstractmethod
    def wait_until_struck(self) -> None:
        """Return when the fault has happened and nothing of the job moves."""


class Killed(Victim):
    """Dies of SIGKILL at the point; the next life is a new process."""

    action = Action.KILL

    def faults(self, fault: Fault) -> list[Fault]:
        """The fault alone."""
        return [fault]

    def wait_until_struck(self) -> None:
        """Wait for the end of the process and its JVM."""
        pipeline = self.pipeline
        assert pipeline.job.wait(_TIMEOUT_S) == _KILLED, pipeline.job.tail()
        pipeline.wait_until(pipeline.job_has_gone, "the end of the job's connections")


class Failing(Victim):
    """Raises at the point; the same process tries again, and stands still before its next attempt so that it can be looked at."""

    action = Action.RAISE

    def faults(self, fault: Fault) -> list[Fault]:
        """The fault, then a stop before the next attempt."""
        return [fault, _BETWEEN_ATTEMPTS]

    def wait_until_struck(self) -> None:
        """Wait until the next attempt stands still."""
        self.pipeline.wait_until(
            lambda: self.plan.pending() == [],
            "the next attempt",
            timeout_s=_TIMEOUT_S,
            alive=(self.pipeline.job,),
        )


VICTIMS: dict[Action, type[Victim]] = {victim.action: victim for victim in (Killed, Failing)}
