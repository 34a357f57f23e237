"""Decides when a process leaves its lanes to others, because it cannot deliver them while others can (decision 27).

A process that has lost Kafka fails in all its lanes, as every process does in an outage. Two signs distinguish the cases: others deliver
meanwhile, or Kafka answers another process, which holds no lane, and not this one. Otherwise the lanes stay where they are: a move would
only cost a takeover. All reasons for which a lane moves: assignment/__init__.py.
"""

import time
from collections.abc import Callable, Sequence

from confluent_kafka import KafkaException

from publisher.monitoring.health import LaneState
from publisher.monitoring.readiness import LaneSnapshot
from service.kafka.renewable_client import is_own
from service.lifecycle.backoff import Backoff

Clock = Callable[[], float]

_LEAST_AWAY_S, _MOST_AWAY_S = 60.0, 900.0
_ASK_EVERY_S = 2.0


class KafkaProbe:
    """Whether Kafka answers this process. Used by the main loop only."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._ask_at = 0.0
        self._failure: str | None = None

    def failure(self, ask: Callable[[], object]) -> str | None:
        """Return why Kafka does not answer `ask`, None if it does; an error from a broker is an answer. Asks at most every 2 s."""
        if self._clock() >= self._ask_at:
            self._failure = None
            try:
                ask()
            except KafkaException as error:
                if is_own(error.args[0]):
                    self._failure = f"Kafka does not answer this process: {error.args[0].str()}"
            self._ask_at = self._clock() + _ASK_EVERY_S
        return self._failure


class Withdrawal:
    """Used by the main loop only. `reason`: why the process leaves its lanes to others, None while it does not."""

    def __init__(self, patience_s: float, clock: Clock = time.monotonic) -> None:
        """`patience_s`: for how long others must be able to deliver while nothing is delivered here."""
        self._patience_s = patience_s
        self._clock = clock
        self._away = Backoff(least_s=_LEAST_AWAY_S, most_s=_MOST_AWAY_S)
        self._failing_since: float | None = None
        self._others_since: float | None = None
        self._until = 0.0
        self.reason: str | None = None

    def look(
        self,
        lanes: Sequence[LaneSnapshot],
        *,
        others: bool,
        delivered_s_ago: Callable[[], float | None],
        only_others_reach_kafka: Callable[[], bool],
    ) -> None:
        """Decide again. `lanes`: those that this process works on; `others`: whether another process lives.

        `delivered_s_ago` returns when another process last delivered, None where none has; `only_others_reach_kafka`, whether Kafka answers
        a process without lanes, but not this one. Both are asked only while every lane fails here.
        """
        now = self._clock()
        if self.reason is not None and (not others or now >= self._until):
            self.reason = None
        if self.reason is not None:
            return
        if any(lane.state == LaneState.RUNNING for lane in lanes):
            self._away.reset()
        if not others or not lanes or not all(_may_succeed_elsewhere(lane) for lane in lanes):
            self._failing_since = self._others_since = None
            return
        if self._failing_since is None:
            self._failing_since = now
        ago = delivered_s_ago()
        # Deliveries from before the failure do not count, nor those of a process that has failed since, too.
        deliver = ago is not None and ago <= min(now - self._failing_since, self._patience_s)
        if not deliver and not only_others_reach_kafka():
            self._others_since = None
            return
        if self._others_since is None:
            self._others_since = now
        for_s = now - self._others_since
        if for_s >= self._patience_s:
            did = "did" if deliver else "can"
            self.reason = (
                f"no lane of this process could deliver for {now - self._failing_since:.0f} s, while other processes {did}; they take its "
                f"lanes over: {lanes[0].reason}"
            )
            self._until = now + self._away.next()
            self._failing_since = self._others_since = None


def _may_succeed_elsewhere(lane: LaneSnapshot) -> bool:
    """Whether the lane fails by what may be this process's own: what stops a lane otherwise, a missing right too, every process meets."""
    return lane.state == LaneState.RETRYING or lane.login_refused
