"""The highest rate of sessions that is held for two minutes with a p99 below one second."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from benchmarks.peers.contender import Contender
from benchmarks.suite.load.workload import Bench, Run
from benchmarks.suite.measures.latency import BEGIN_S, DRAIN_S, MOST_BEHIND_S, Phase, phase, warmed
from benchmarks.support.rounds import screen


def highest(
    ladder: Sequence[float], attempt: Callable[[float], bool], proof: Callable[[float], bool]
) -> float | None:
    """Return the highest rung found for which `proof` holds; None where none does. `ladder` is ascending.

    The short `attempt` finds by bisection where to begin, as if what holds on one rung held on all below. The long `proof` decides,
    from there downwards. Where the first proof holds, the rungs above are attempted again and proven, as long as both hold: the attempt
    before may have failed by chance.
    """
    low, high = 0, len(ladder)
    while high - low > 1:
        middle = (low + high) // 2
        if attempt(ladder[middle]):
            low = middle
        else:
            high = middle
    if not proof(ladder[low]):
        return next((rung for rung in ladder[:low][::-1] if proof(rung)), None)
    while low + 1 < len(ladder) and attempt(ladder[low + 1]) and proof(ladder[low + 1]):
        low += 1
    return ladder[low]


TITLE = "The highest rate that is held with p99 below a second"
LABELS = {
    "rate": "sessions/s held",
    "p50": "latency p50 at that rate, s",
    "p99": "p99 at that rate, s",
    "sessions": "sessions measured at that rate",
    "failed_rate": "lowest rate tried that was not held, sessions/s",
    "failed_p99": "its p99, s",
    "behind": "rates at which the senders could not keep up",
}
_P99_S = 1.0
_DRAIN_S = 600.0
_WARM_S = 10.0
_LONGEST_SESSION_S = 2.0
_HOPELESS_S = 3.0
"""Seconds' worth of sessions that are later than a second, of which on p99 cannot be below a second for up to 300 s."""


@dataclass
class Trials:
    """What each rate came to, on one warm contender."""

    run: Run
    warm_up_s: float
    found: dict[float, dict[str, float]] = field(default_factory=dict)
    """By rate, of the last trial."""
    behind: int = 0

    def warm(self, rate: float) -> None:
        """Send at a rate for a while: a first try would say how fast the contender is cold."""
        phase(self.run, rate, 0.0, _WARM_S)

    def holds(self, rate: float, seconds: float) -> bool:
        """Try a rate for so long, and wait until all of it is delivered."""
        before, began = self.run.watcher.sessions, time.monotonic()

        def is_hopeless() -> bool:
            came = self.run.watcher.sessions - before
            return overdue(rate, time.monotonic() - began, came) > _HOPELESS_S * rate

        one: Phase = phase(self.run, rate, self.warm_up_s, seconds, is_hopeless)
        if not self.run.wait_for_all(_DRAIN_S):
            raise RuntimeError(f"the sessions sent at {rate:g}/s did not all come within {_DRAIN_S:g} s")
        found = one.measured(self.run.watcher.received())
        self.found[rate] = found
        # Where the senders could not, the contender had less to do than that rate: not held, and said.
        behind = found["behind_s"] > MOST_BEHIND_S
        self.behind += behind
        held = not behind and found["p99"] < _P99_S
        screen.print(
            f"  {rate:g} sessions/s for {seconds:g} s: p99 {found['p99']:.3f} s, senders {found['behind_s']:.3f} s behind: "
            f"{'held' if held else 'not held'}",
            markup=False,
        )
        return held


def overdue(rate: float, elapsed_s: float, came: int) -> float:
    """Return the sessions that ended more than a second ago and have not come, where they began to start `elapsed_s` ago."""
    return rate * (elapsed_s - _LONGEST_SESSION_S - _P99_S) - came


def expected_s(ladder: Sequence[float], *, warm_up_s: float, attempt_s: float, proof_s: float) -> float:
    """Return how long it will take, without the start: as a rule the second proof holds."""
    attempts = math.ceil(math.log2(len(ladder))) + 1
    each = BEGIN_S + warm_up_s + DRAIN_S
    return _WARM_S + DRAIN_S + attempts * (each + attempt_s) + 1.5 * (each + proof_s)


def measure(
    bench: Bench,
    contender: Contender,
    ladder: Sequence[float],
    *,
    partitions: int,
    warm_up_s: float,
    attempt_s: float,
    proof_s: float,
) -> dict[str, float]:
    """Search the ladder of rates. A rate counts as held if p99 stayed below a second for `proof_s`."""
    with warmed(bench, contender, partitions) as run:
        trials = Trials(run, warm_up_s)
        trials.warm(ladder[len(ladder) // 2])
        rate = highest(
            ladder, lambda one: trials.holds(one, attempt_s), lambda one: trials.holds(one, proof_s)
        )
    failed = min((one for one in trials.found if rate is None or one > rate), default=None)
    found: dict[str, float] = {"rate": rate or 0.0, "behind": trials.behind}
    if rate is not None:
        found |= {name: trials.found[rate][name] for name in ("p50", "p99", "sessions")}
    if failed is not None:
        found |= {"failed_rate": failed, "failed_p99": trials.found[failed]["p99"]}
    return found
