"""At steady rates: from the broker's append of an end event to a `read_committed` consumer that has the session's last output."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import uuid4

from benchmarks.peers.contender import Contender
from benchmarks.pipeline.latency import Latencies, latencies
from benchmarks.suite.load import usage
from benchmarks.suite.load.senders import Senders, Sent
from benchmarks.suite.load.workload import COMPLETENESS, EVENTS, Bench, Run, completeness
from benchmarks.support.report import screen

TITLE = "End event at the broker to outputs that a read_committed consumer has"
LABELS = {
    "p50": "latency p50, s",
    "p90": "p90, s",
    "p99": "p99, s",
    "p999": "p99.9, s",
    "greatest": "greatest, s",
    "sessions": "sessions measured",
    "sent_s": "sessions/s that were sent",
    "behind_s": "most that the senders were behind, s",
    "cpu": "CPU of an input event, all parts but Kafka, us",
    **COMPLETENESS,
}
MOST_BEHIND_S = 0.5
"""Where the senders were later than that, the load was not the one asked for, and there is no figure."""

_FIRST_S = 300.0
_LAST_S = 300.0


class SendersBehindError(RuntimeError):
    """The machine could not send what was to be sent: the round says nothing about the contender."""


@dataclass
class Phase:
    """Sessions at one rate for a while, and what came of them."""

    sent: Sent
    window: tuple[float, float]
    cpu_s: float

    def measured(self, received: dict[bytes, float]) -> dict[str, float]:
        """Raises SendersBehindError where the load was not the one asked for."""
        begin, end = self.window
        found: Latencies = latencies(self.sent.ends, received, self.window)
        return {
            "p50": found.p50,
            "p90": found.p90,
            "p99": found.p99,
            "p999": found.p999,
            "greatest": found.greatest,
            "sessions": found.sessions,
            "sent_s": found.sessions / (end - begin),
            "behind_s": self.sent.behind_s(begin, end),
            "cpu": 1e6 * self.cpu_s / (found.sessions * EVENTS),
        }


def checked(found: dict[str, float]) -> dict[str, float]:
    """Return a round. Raises SendersBehindError where its load was not the one asked for."""
    if found["behind_s"] > MOST_BEHIND_S:
        raise SendersBehindError(
            f"the senders were up to {found['behind_s']:.2f} s behind: the machine cannot send at this rate beside the contender"
        )
    return found


@contextmanager
def warmed(bench: Bench, contender: Contender, partitions: int, rate: float = 100.0) -> Iterator[Run]:
    """Start a contender on an empty topic, and send sessions until the first can be read."""
    topic = bench.input_topic(partitions)
    with bench.running(contender, topic) as run:
        with Senders(bench.servers.bootstrap_servers, topic, rate, f"w{uuid4().hex[:6]}-") as senders:
            if not run.wait_for(1, _FIRST_S):
                raise RuntimeError(f"no output within {_FIRST_S:g} s")
            run.sent(senders.stop())
        run.wait_for_all(_LAST_S)
        yield run


def phase(run: Run, rate: float, warm_up_s: float, seconds: float) -> Phase:
    """Send at a rate: for `warm_up_s` that do not count, then for `seconds`; then wait for what is under way, five minutes at the most."""
    with Senders(run.servers.bootstrap_servers, run.topic, rate, f"l{uuid4().hex[:6]}-") as senders:
        run.wait(2.5 + warm_up_s)  # the first sessions end after one to two seconds
        begin, before = time.time(), _own_cpu_s(run)
        run.wait(seconds)
        end, after = time.time(), _own_cpu_s(run)
        sent = senders.stop()
    run.sent(sent)
    if not run.wait_for_all(_LAST_S):
        screen.print(f"  {len(run.ends) - run.watcher.sessions:,} sessions have not come after {_LAST_S:g} s")
    return Phase(sent, (begin, end), after - before)


def _own_cpu_s(run: Run) -> float:
    used = usage.cpu_s({part: pids for part, pids in run.parts().items() if part != "kafka"})
    return sum(used[part] for part in run.parts() if part != "kafka")


def measure(
    bench: Bench,
    contender: Contender,
    rates: Sequence[float],
    *,
    partitions: int,
    warm_up_s: float,
    seconds: float,
) -> dict[float, dict[str, float]]:
    """Return {rate: measures}, each rate after the other on the same warm contender. A rate that could not be sent is left out."""
    with warmed(bench, contender, partitions) as run:
        phases = {rate: phase(run, rate, warm_up_s, seconds) for rate in rates}
        arrivals = run.watcher.stop()
    whole = completeness(bench.servers.bootstrap_servers, run.ends)
    found = {}
    for rate, one in phases.items():
        try:
            found[rate] = checked(one.measured(arrivals.received)) | whole
        except SendersBehindError as error:
            screen.print(f"  {rate:g} sessions/s: {error}", markup=False)
    return found
