"""From kill -9 of a part to the first output of a session that ended later, at a steady rate."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from uuid import uuid4

from benchmarks.peers.contender import Contender
from benchmarks.peers.ours import JOB, PUBLISHER, Ours, RunningOurs
from benchmarks.suite.load.latencies import SentEnd, first_after
from benchmarks.suite.load.senders import Senders
from benchmarks.suite.load.workload import COMPLETENESS, Bench, Run, completeness
from benchmarks.suite.measures.latency import warmed

TITLE = "kill -9 of a part to the next new output"
LABELS = {
    "seconds": "kill -9 to the first output of a session that ended later, s",
    "all_s": "kill -9 to the last output of sessions that ended in the next second, s",
    **COMPLETENESS,
}
_SETTLE_S = 8.0
_STANDBY_S = 180.0
_FIRST_S = 600.0
_LAST_S = 120.0
_SOME = 50
_BACK_S = 20.0
"""As a rule: a standby is ready, and after the kill more sessions than were under way have come."""


@dataclass(frozen=True)
class Scenario:
    """What is killed, and who goes on."""

    name: str
    kill: Callable[[Run], float]
    """Kill and start again what is to be started; return the moment of the kill, seconds since 1970."""
    before: Callable[[Run], None] = lambda run: None
    """Before each kill."""


def _restarted(part: str | None) -> Callable[[Run], float]:
    """None: the first part that it has."""

    def kill(run: Run) -> float:
        killed = part or next(iter(run.contender.pids()))
        moment = run.contender.kill(killed)
        run.contender.start(killed)
        return moment

    return kill


def _ours(run: Run) -> RunningOurs:
    assert isinstance(run.contender, RunningOurs)
    return run.contender


def _stand_by(run: Run) -> None:
    _ours(run).stand_by(_STANDBY_S)


def _second_publisher(run: Run) -> None:
    _ours(run).second_publisher(_STANDBY_S)


OURS = (
    Scenario("job, started again at once", _restarted(JOB)),
    Scenario("job, a standby goes on", lambda run: _ours(run).kill_owner(), _stand_by),
    Scenario("publisher, started again at once", _restarted(PUBLISHER)),
    Scenario(
        "publisher, a second one goes on",
        lambda run: _ours(run).kill_first_publisher(),
        _second_publisher,
    ),
)


def scenarios(contender: Contender) -> tuple[Scenario, ...]:
    """Return what can be killed of it: of a peer its one part, which is started again at once."""
    return (
        OURS if isinstance(contender, Ours) else (Scenario("job, started again at once", _restarted(None)),)
    )


def measure(
    bench: Bench, contender: Contender, scenario: Scenario, *, kills: int, rate: float, partitions: int
) -> Iterator[dict[str, float]]:
    """Kill so many times, and yield what each came to. All outputs are checked at the end, the same for each kill."""
    with warmed(bench, contender, partitions, rate) as run:
        moments = []
        with Senders(bench.servers.bootstrap_servers, run.topic, rate, f"k{uuid4().hex[:6]}-") as senders:
            for _ in range(kills):
                scenario.before(run)
                run.wait(_SETTLE_S)
                moments.append(scenario.kill(run))
                # What was under way may still come at once: only many more show that it goes on.
                came = run.watcher.sessions
                if not run.wait_for(came + int(_SOME + 3 * rate), _FIRST_S):
                    raise RuntimeError(f"{scenario.name}: no outputs within {_FIRST_S:g} s after a kill")
            sent = senders.stop()
        run.sent(sent)
        run.wait_for_all(_LAST_S)
        received = run.watcher.stop().received
    whole = completeness(bench.servers.bootstrap_servers, run.ends)
    for moment in moments:
        yield recovery(moment, sent.ends, received) | whole


def expected_s(kills: int) -> float:
    """Return how long so many kills of a part will take, without the start."""
    return kills * (_SETTLE_S + _BACK_S)


def recovery(
    moment_s: float, ends: Mapping[bytes, SentEnd], received: Mapping[bytes, float]
) -> dict[str, float]:
    """Return how long after a kill the outputs of sessions came that ended later: the first, and all that ended within a second.

    Where two share the work, the other half goes on at once: only the second figure says how long the killed half was away.
    """
    first = first_after(moment_s, ends, received)
    soon = [key for key, end in ends.items() if moment_s < end.at_broker_s <= moment_s + 1.0]
    last = max((received.get(key, math.inf) for key in soon), default=math.inf)
    return {"seconds": math.inf if first is None else first - moment_s, "all_s": last - moment_s}
