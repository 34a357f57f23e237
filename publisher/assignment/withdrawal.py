"""Decides when a process leaves its lanes to others, because it cannot deliver them while others can (decision 27).

When a process loses Kafka all its lanes fail, and in an outage all lanes of every process fail. Two signs distinguish the cases: other
processes still deliver, or Kafka answers another process, which holds no lane, but not this one. Without such a sign the lanes stay where
they are, because a move would only cost a takeover. All reasons why a lane moves: assignment/__init__.py.
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
    """Finds out whether Kafka answers this process. Used by the main loop only."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._ask_at = 0.0
        self._failure: str | None = None

    def failure(self, ask: Callable[[], object]) -> str | None:
        """Return why Kafka does not answer `ask`, None if it does. An error from a broker is an answer. Calls `ask` at most every 2 s."""
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
    """Used by the main loop only. `reason`: why the process leaves its lanes to others, None if it does not."""

    def __init__(self, patience_s: float, clock: Clock = time.monotonic) -> None:
        """`patience_s`: how long this process must deliver nothing, while others can, before it leaves its lanes to them."""
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
        """Decide again. `lanes`: the lanes that this process works on; `others`: whether another process lives.

        `delivered_s_ago` returns how many seconds ago another process last delivered, None if none has. `only_others_reach_kafka` returns
        whether Kafka answers a process without lanes, but not this one. Both are called only while every lane of this process fails.
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
        # A delivery from before the failure does not count: its process may have failed since, too.
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
    """Whether the cause of the lane's failure may be this process's own. Anything else that stops a lane, such as a missing right, would
    stop it in every process."""
    return lane.state == LaneState.RETRYING or lane.login_refused
