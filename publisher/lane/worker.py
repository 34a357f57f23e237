"""Runs the loop around one lane: schedules the steps, opens the lane again after any failure, and decides when it must stop."""

import threading

import psycopg
import structlog
from confluent_kafka import KafkaException

from publisher.delivery.sender import StepOutcome
from publisher.lane.lane import Lane
from publisher.lane.transaction_pace import TransactionPace
from publisher.monitoring import metrics
from publisher.monitoring.health import LaneHealth, LaneState
from publisher.protocol.stop_reasons import HandoverStuckError, StartOverError, StoppedError, StopReason
from service.errors import FencedError, UnavailableError, reason_of
from service.kafka.client import UNAUTHENTICATED, UNAUTHORISED
from service.lifecycle.allocators import collect_after_failure
from service.lifecycle.backoff import Backoff
from service.lifecycle.tracebacks import release_frames
from service.observability.loops import LifeSign, unwatched

_log = structlog.get_logger()

# `publisher status` shows a failing lane only after this many failures.
_FAILURES_SHOWN = 3


class Worker:
    """Runs a lane until its epoch ends, `leave` is called, `Lane.open` returns False or a step raises HandoverStuckError. One thread.

    A lane that must not continue keeps its lease. It checks again slowly, and at once when `look` is set, because somebody may have resumed
    it.
    """

    def __init__(
        self,
        lane: Lane,
        health: LaneHealth,
        *,
        wake: threading.Event,
        look: threading.Event,
        pace: TransactionPace,
        poll_s: float,
        stop_backoff: Backoff | None = None,
    ) -> None:
        """`health`: receives the lane's state; `wake`: set when there may be rows; `pace`: shared by all lanes of the process."""
        self._lane = lane
        self._health = health
        self._leave = threading.Event()
        self._wake = wake
        self._look = look
        self._pace = pace
        self._poll_s = poll_s
        self._backoff = Backoff(least_s=0.1, most_s=10.0)
        self._stop_backoff = stop_backoff or Backoff(least_s=2.0, most_s=10.0)
        self._state = ""
        self._unexpected = ""
        self._was_open = False
        # Neither None nor a reason, so that the first step clears what an earlier holder has shown.
        self._shown: str | None = ""
        self.stopped: str | None = None
        """Why the lane is stopped until somebody fixes the cause, None if it is not stopped."""
        self.bug: Exception | None = None
        """An exception raised while another was being handled, which leaves the lane in an unknown state."""
        self.done = False
        """Whether the lane has delivered its whole epoch. It then keeps its lease."""

    def run(self, alive: LifeSign = unwatched) -> None:
        """Work until nothing is left to do; call `alive` before each step. Sets `stopped`, `done` or `bug`, and raises nothing.

        An unexplained exception stops only this lane. If it ended the process, one process after another would take the lane over and end.
        """
        self._lane.alive = alive
        try:
            self._work(alive)
        except Exception as error:  # noqa: BLE001 - a thread that ends in silence would be taken for one that is done
            self.bug = self.bug or error

    def leave(self) -> None:
        """Give the lane up at the next transaction boundary."""
        self._leave.set()
        self._wake.set()
        self._look.set()

    def _work(self, alive: LifeSign) -> None:
        is_open = False
        try:
            while not self._leave.is_set():
                alive()
                try:
                    if is_open:
                        if self._step():
                            break
                    elif self._open():
                        is_open = True
                    else:
                        break
                except StartOverError as error:
                    alive()
                    release_frames(error)
                    self._moved()
                    is_open = self._discard()
                except HandoverStuckError as error:
                    # Another process may deliver the lane. This one takes the lane back once its own lanes get their turn again.
                    alive()
                    release_frames(error)
                    self._discard()
                    self._failed(error)
                    self._show(f"retrying: {_reason(error)}")
                    break
                except Exception as error:  # noqa: BLE001 - sorted here
                    alive()
                    is_open = self._discard()
                    self._handle(error)
        finally:
            self._close()

    def _open(self) -> bool:
        # Cleared before the state is read, so that a resume that this opening misses sets it again.
        self._look.clear()
        if self._lane.open():
            self._health.producer = self._lane.sender.producer
            metrics.opened(again=self._was_open)
            self._was_open = True
            return True
        self._change("elsewhere")
        return False

    def _discard(self) -> bool:
        """Close the lane's producer; return False: the lane is not open."""
        self._health.producer = None
        self._lane.discard()
        return False

    def _step(self) -> bool:
        """Do one step; return whether the lane is done."""
        outcome = self._lane.run_once()
        self._lane.alive()
        self._backoff.reset()
        self._stop_backoff.reset()
        self._now_running()
        if outcome in (StepOutcome.IDLE, StepOutcome.CAUGHT_UP):
            self._sleep(self._poll_s)
        self.done = outcome is StepOutcome.DONE
        return self.done

    def _now_running(self) -> None:
        """Show the lane as running. Call only after a step: after `open`, it would hide, at each attempt, a stop that only a step finds."""
        self.stopped = None
        position = self._lane.position
        if position is not None:
            self._health.progressed(position.seq)
            self._change("running", seq=position.seq, cursor=str(position.cursor))
        self._health.transaction_rows = self._lane.sender.size.rows
        slow = self._lane.sender.size.reason
        reason = None if slow is None else f"retrying: {slow}"
        if self._shown != reason:
            self._lane.show_running(reason)
            self._shown = reason

    def _moved(self) -> None:
        """Count the progress that a lane made before it started over, for example during the search for a refused row."""
        position = self._lane.position
        if position is not None:
            self._health.restarted_at(position.seq)

    def _sleep(self, seconds: float) -> None:
        """Wait at most `seconds` for a wake-up. A wake-up during the last step is not lost; several count as one."""
        if not self._leave.is_set() and self._wake.wait(seconds):
            self._leave.wait(self._pace.take_turn())
        # Cleared before the step reads, so that the step reads everything that was committed until then.
        self._wake.clear()

    def _handle(self, error: Exception) -> None:
        """Classify a failure, show it, and wait."""
        release_frames(error)
        collect_after_failure()
        code = error.args[0].code() if isinstance(error, KafkaException) else None
        self._health.login_refused = code in UNAUTHENTICATED
        if code in UNAUTHORISED:
            error = StoppedError(
                StopReason.NOT_AUTHORISED,
                f"Kafka refuses this publisher: {error.args[0].str()}. Grant it the missing right, or correct "
                "[kafka.options]; the lane then continues by itself",
                retry=True,
            )
        if not isinstance(
            error, StoppedError | KafkaException | psycopg.Error | UnavailableError | FencedError
        ):
            error = self._explained(error)
        if isinstance(error, StoppedError):
            if error.retry or self._confirmed():
                self._stand_still(error)
            return
        reason = self._failed(error)
        delay = self._backoff.next()
        if self._backoff.failures >= _FAILURES_SHOWN:
            self._show(f"retrying: {reason}")
        self._leave.wait(delay)

    def _explained(self, error: Exception) -> StoppedError:
        """Log the traceback of an unexpected exception once; return the reason to stop."""
        found = reason_of(error)
        if found != self._unexpected:
            self._unexpected = found
            _log.error("lane_unexpected", lane=self._lane.lane, exc_info=error)
        return StoppedError(
            StopReason.UNEXPECTED,
            f"{found}. This is a defect of the publisher or of what it runs on; its traceback is in the log of the process "
            "(`lane_unexpected`). Nothing was lost or repeated; the lane checks again by itself, and the others continue",
            retry=True,
        )

    def _stand_still(self, error: StoppedError) -> None:
        """Show the reason, and wait for the next check."""
        metrics.stopped(unexpected=error.reason is StopReason.UNEXPECTED)
        self._health.failed(LaneState.STOPPED, str(error))
        self._change("stopped", reason=str(error), retrying=error.retry)
        self._show(str(error), error.reason)
        if error.retry:
            self.stopped = None
            slowly = error.reason is StopReason.UNEXPECTED
            self._leave.wait(self._stop_backoff.next() if slowly else max(1.0, self._backoff.next()))
            return
        self.stopped = str(error)
        if not self._leave.is_set():
            self._look.wait(self._stop_backoff.next())

    def _confirmed(self) -> bool:
        """Whether the reason to stop is certain. It is not if another publisher may have changed the state that was read."""
        try:
            self._lane.confirm()
        except (psycopg.Error, UnavailableError, FencedError) as error:
            self._failed(error)
            self._leave.wait(self._backoff.next())
            return False
        return True

    def _failed(self, error: Exception) -> str:
        """Count and show a transient failure; return its reason."""
        self.stopped = None
        metrics.failed(error)
        reason = _reason(error)
        self._health.failed(LaneState.RETRYING, reason)
        if not self._leave.is_set():
            self._change("retrying", reason=reason)
        return reason

    def _change(self, state: str, **details: object) -> None:
        """Log a change of state, once."""
        if state == self._state:
            return
        self._state = state
        log = _log.info if state in ("running", "elsewhere") else _log.warning
        log(f"lane_{state}", lane=self._lane.lane, **details)

    def _show(self, explanation: str, reason: StopReason | None = None) -> None:
        self._shown = explanation
        try:
            self._lane.show_stopped(explanation, reason)
        except (psycopg.Error, UnavailableError, FencedError) as error:
            _log.debug("reason_not_recorded", lane=self._lane.lane, reason=_reason(error))

    def _close(self) -> None:
        self._health.producer = None
        try:
            self._lane.close(keep_lease=self.done)
        except (psycopg.Error, FencedError) as error:
            # The process gives the lease back at its next check.
            _log.debug("lease_not_released", lane=self._lane.lane, reason=_reason(error))


def _reason(error: Exception) -> str:
    if isinstance(error, KafkaException):
        return f"Kafka: {error.args[0].str()}"
    return reason_of(error)
