"""Keeps the state that `/healthz` and `/readyz` of a publisher report. The publisher's threads write it, the endpoint reads it.

Nothing here waits or queries a server.
"""

import threading
import time
from collections.abc import Iterable
from enum import StrEnum

from confluent_kafka import Producer

from db.connection import longest_wait_s
from publisher.monitoring.readiness import HealthSnapshot, LaneSnapshot
from service.observability.loops import Loop, Loops
from service.observability.verdict import HealthVerdict
from service.settings import Settings

# The longest backoff of worker.py, relay.py and wakeup.py: the longest pause of their loops between two steps.
_MOST_BACKOFF_S = 10.0
# Opening a lane may last as long as this many requests to Kafka and waits for Postgres, one after the other, each at its limit.
_REQUESTS, _STATEMENTS = 5, 3


def longest_turn_s(settings: Settings) -> float:
    """Return how long one turn of any loop of this process may take while servers are slow or do not answer."""
    kafka_s = _REQUESTS * settings.kafka.request_timeout_s + settings.publisher.transaction_timeout_ms / 1000
    wait_s = max(_MOST_BACKOFF_S, settings.publisher.poll_ms / 1000)
    return wait_s + kafka_s + _STATEMENTS * longest_wait_s(settings.postgres)


def longest_attempt_s(settings: Settings) -> float:
    """Return the longest time between two failures of a lane while Kafka does not answer."""
    return _MOST_BACKOFF_S + settings.kafka.request_timeout_s


class LaneState(StrEnum):
    """The state of a lane."""

    OPENING = "opening"
    RUNNING = "running"
    RETRYING = "retrying"
    STOPPED = "stopped"


class LaneHealth:
    """The health of one lane. The lane's thread writes it, other threads read it."""

    def __init__(self, epoch: int, lane: int) -> None:
        self.epoch = epoch
        self.lane = lane
        self.producer: Producer | None = None
        """The producer of this tenure, None while the lane is not open."""
        self.transaction_rows: int | None = None
        """The most rows that the next transaction may carry, None before the first step."""
        self.loop: Loop | None = None
        """The loop of the lane's worker, None before the worker runs."""
        self.login_refused = False
        """Whether Kafka refused this process's login at the newest failure. The logins of other processes may be right."""
        self._state, self._reason = LaneState.OPENING, ""
        self._seq: int | None = None
        self._progress_at = time.monotonic()

    def progressed(self, seq: int) -> None:
        """Record a success: a transaction is in Kafka, or the ledger has nothing for the lane."""
        self._seq = seq
        self._progress_at = time.monotonic()
        self._state, self._reason = LaneState.RUNNING, ""
        self.login_refused = False

    def is_late(self) -> bool:
        """Whether the lane's worker hangs: its step takes longer than the settings allow."""
        return self.loop is not None and self.loop.late_s() > 0

    def restarted_at(self, seq: int) -> None:
        """Record that the lane starts over at transaction `seq`; a new `seq` counts as progress."""
        if seq != self._seq:
            self.progressed(seq)

    def failed(self, state: LaneState, reason: str) -> None:
        """Record that a step failed."""
        self._state, self._reason = state, reason

    def snapshot(self, now: float) -> LaneSnapshot:
        """Return the lane's state at `now` (monotonic clock)."""
        return LaneSnapshot(
            self.epoch,
            self.lane,
            self._state.value,
            self._reason,
            now - self._progress_at,
            self._seq,
            self.transaction_rows,
            self.login_refused,
        )


class ProcessHealth:
    """The health of this process. Thread-safe."""

    def __init__(self, hung_s: float = 60.0) -> None:
        """`hung_s`: see [metrics]."""
        self.loops = Loops(hung_s)
        self._lock = threading.Lock()
        self._lanes: dict[tuple[int, int], LaneHealth] = {}
        self._phase = "starting"
        self._assignment_error = ""
        self._assignment_read_at = self._heartbeat_at = time.monotonic()
        self._has_epoch = False
        self._unheld: dict[int, float] = {}  # lane -> since when
        self._withdrawn, self._cannot_deliver = "", False

    def stopping(self) -> None:
        """Record that the process begins to stop."""
        self._phase = "stopping"

    def assignment_read(self, *, has_epoch: bool, unheld: Iterable[int] = ()) -> None:
        """Record that the assignment of lanes was read, and that this process works on its share.

        `has_epoch`: whether there are lanes; `unheld`: the lanes that have work but no holder.
        """
        self._phase = "running"
        now = time.monotonic()
        self._has_epoch = has_epoch
        self._unheld = {lane: self._unheld.get(lane, now) for lane in sorted(unheld)}
        self._assignment_error = ""
        self._assignment_read_at = now

    def assignment_failed(self, reason: str) -> None:
        """Record that the assignment of lanes could not be read."""
        self._assignment_error = reason

    def set_withdrawal(self, reason: str | None, *, cannot_deliver: bool = False) -> None:
        """Record why the process leaves lanes to others, None if it does not. `cannot_deliver`: a restarted process might deliver them."""
        self._withdrawn, self._cannot_deliver = reason or "", cannot_deliver

    def heartbeat_written(self) -> None:
        """Record that the heartbeat was written."""
        self._heartbeat_at = time.monotonic()

    def worker_started(self, lane: LaneHealth) -> None:
        """Record that a worker has started on a lane."""
        with self._lock:
            self._lanes[lane.epoch, lane.lane] = lane

    def worker_ended(self, lane: LaneHealth) -> None:
        """Record that the worker on the lane has ended."""
        with self._lock:
            if self._lanes.get((lane.epoch, lane.lane)) is lane:
                del self._lanes[lane.epoch, lane.lane]

    def lanes(self) -> list[LaneHealth]:
        """Return the lanes with a worker."""
        with self._lock:
            return [lane for _, lane in sorted(self._lanes.items())]

    def snapshot(self) -> HealthSnapshot:
        """Return the state of the process and all its lanes now."""
        now = time.monotonic()
        return HealthSnapshot(
            phase=self._phase,
            assignment_error=self._assignment_error,
            assignment_read_s_ago=now - self._assignment_read_at,
            heartbeat_s_ago=now - self._heartbeat_at,
            has_epoch=self._has_epoch,
            unheld=tuple((lane, now - since) for lane, since in self._unheld.items()),
            lanes=tuple(lane.snapshot(now) for lane in self.lanes()),
            withdrawn=self._withdrawn,
        )

    def verdict(self) -> HealthVerdict:
        """Return the answer of `/healthz`: not healthy (503) if a loop hangs, or if this process cannot deliver while others can."""
        found = self.loops.verdict()
        reasons = [self._withdrawn] if self._cannot_deliver else []
        return HealthVerdict([*found.reasons, *reasons], found.details | {"leaves_lanes": self._withdrawn})
