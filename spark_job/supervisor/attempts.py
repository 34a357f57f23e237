"""Whether another attempt follows a failed one, and with which plan. `restart_delay` decides when.

service/errors.py has each error's exit code and `may_pass`; failures/explain.py chooses the error, or db/refused.py if Postgres refuses a
connection.
"""

import re
import threading
import time
from dataclasses import dataclass, field, replace
from uuid import UUID, uuid4

import structlog

from service.errors import (
    WRONG_AT_THE_START,
    DefectError,
    DiskFullError,
    FencedError,
    OutboxError,
    SparkLostError,
)
from service.lifecycle.tracebacks import release_frames
from service.settings import RestartSettings
from spark_job.ledger.requests import JobRequest
from spark_job.monitoring import metrics
from spark_job.monitoring.health import JobHealth
from spark_job.recovery.findings import AcceptedRisks
from spark_job.spark import jvm
from spark_job.spark.lazy_session import LazySession
from spark_job.supervisor.restart_delay import GiveUp, RestartStrategy

log = structlog.get_logger()

_LOGGED_CHARS = 500
_SAME_DEFECTS = 3
_KNOWN_RUNS = 1_000
_NUMBER = re.compile(r"0x[0-9a-f]+|\d+")


@dataclass
class AttemptPlan:
    """The arguments of an attempt beside the settings."""

    attempt: int = 1
    accepted: AcceptedRisks = field(default_factory=AcceptedRisks)
    take_over: bool = False
    request: JobRequest | None = None
    run_id: UUID = field(default_factory=uuid4)
    former_runs: tuple[UUID, ...] = ()
    """Earlier runs of this process, the newest last. Postgres may still show one of them as alive."""
    started: bool = False
    """Whether a start of this process has succeeded."""
    may_differ: bool = False
    """Whether rebuilt sessions may differ from the digest: with `--accept-data-loss`, until a batch is committed."""

    def use(self) -> None:
        """Note that the start has succeeded: the risks that a person accepted for it do not apply to a later start."""
        self.may_differ |= self.accepted.data_loss
        self.accepted, self.take_over, self.request, self.started = AcceptedRisks(), False, None, True

    def ended(self, *, has_committed: bool) -> None:
        """Note that the run has ended: differences that a person accepted hold until a commit."""
        self.may_differ &= not has_committed

    def following(self) -> "AttemptPlan":
        """Return the plan of the attempt after this one. It fences no owner: `--take-over` is for the owner at the process's start."""
        return replace(self, attempt=self.attempt + 1, run_id=uuid4(), former_runs=self.runs, take_over=False)

    @property
    def runs(self) -> tuple[UUID, ...]:
        """The runs of this process' newest attempts, this one included: the heartbeats of older attempts no longer count."""
        return (*self.former_runs, self.run_id)[-_KNOWN_RUNS:]


def passes_by_itself(error: OutboxError) -> bool:
    """Tell whether another attempt can succeed without a person's help."""
    if isinstance(error, SparkLostError) and not jvm.is_ours():
        return False
    return error.may_pass


class Restarts:
    """Decides what follows a failed attempt, by `[restart]`."""

    def __init__(
        self,
        settings: RestartSettings,
        spark: LazySession,
        stop: threading.Event,
        health: JobHealth,
        *,
        standby: bool = False,
    ) -> None:
        """`stop`: set from outside, ends the wait for the next attempt. `health` records the wait. `standby`: losing the outbox to another
        run ends the attempt and not the process.
        """
        self._strategy = RestartStrategy(settings)
        self._spark = spark
        self._stop = stop
        self._health = health
        self._standby = standby
        self._repeated = ("", 0)
        """The newest defect, and how often it came in succession without a commit in between."""

    def after(self, plan: AttemptPlan, error: OutboxError) -> AttemptPlan | None:
        """Wait as long as the strategy decides and return the next attempt's plan; None if the process is to stop.

        Raises `error` if no other attempt may follow: the error does not pass by itself, is one of WRONG_AT_THE_START before any start has
        succeeded, or is the same defect once too often; or the strategy gives up, or Spark cannot be started again.
        """
        if not passes_by_itself(error) and not (self._standby and isinstance(error, FencedError)):
            raise error
        if isinstance(error, WRONG_AT_THE_START) and not plan.started:
            raise error
        because = f"{type(error).__name__}: {' '.join(str(error).split())}"[:_LOGGED_CHARS]
        if self._is_stuck(error):
            log.error(
                "job_gives_up", because=f"the same defect {_SAME_DEFECTS} times in a row", failure=because
            )
            raise error
        if self._stop.is_set():
            # No batch is half committed: the next start reads from the ledger how far this attempt came.
            log.warning("failed_while_stopping", because=because)
            return None
        release_frames(error)
        if self._standby and isinstance(error, FencedError):
            # To lose the outbox to another run is no failure of a standby: it waits for that run's end.
            return plan.following()
        answer = self._strategy.failed(time.monotonic())
        if isinstance(answer, GiveUp):
            log.error("job_gives_up", because=answer.because, failure=because)
            raise error
        log.warning("job_restarting", attempt=answer.attempt, in_s=round(answer.in_s, 3), because=because)
        self._health.restarting(because, answer.in_s)
        if not self._spark.renew(tidy=isinstance(error, DiskFullError)):
            raise error
        metrics.restarted(error)
        if self._stop.wait(answer.in_s):
            return None
        return plan.following()

    def _is_stuck(self, error: OutboxError) -> bool:
        """Return whether the same defect has come too often. Numbers in its message may differ: offsets, times or addresses."""
        if not isinstance(error, DefectError):
            self._repeated = ("", 0)
            return False
        text, count = _NUMBER.sub("#", str(error)), 1
        if text == self._repeated[0] and not self._health.has_committed:
            count += self._repeated[1]
        self._repeated = (text, count)
        return count >= _SAME_DEFECTS
