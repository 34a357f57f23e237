"""At steady rates: from the broker's append of an end event to a `read_committed` consumer that has the session's last output."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, Self
from uuid import uuid4

from benchmarks.peers.contender import Contender
from benchmarks.suite.load import usage
from benchmarks.suite.load.latencies import Latencies, latencies
from benchmarks.suite.load.senders import Senders, Sent
from benchmarks.suite.load.workload import COMPLETENESS, EVENTS, Bench, Run, completeness
from benchmarks.support.rounds import FailedRounds, screen

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
    "cores": "cores, all parts but Kafka",
    "cores_kafka": "cores, Kafka",
    **COMPLETENESS,
}
MOST_BEHIND_S = 0.5
"""Where the senders were later than that, the load was not the one asked for, and there is no figure."""

BEGIN_S = 2.5
"""The first sessions end one to two seconds after they began."""
DRAIN_S = 5.0
"""As a rule: until what was under way has been sent and has come."""
_FIRST_S = 300.0
_LAST_S = 300.0


class SendersBehindError(RuntimeError):
    """The machine could not send what was to be sent: the round says nothing about the contender."""


class Cpu(NamedTuple):
    """Seconds of CPU: of all parts but Kafka, and Kafka's."""

    own: float
    kafka: float

    @classmethod
    def used(cls, run: Run) -> Self:
        """Return what the processes of a run have used up to now."""
        parts = run.parts()
        used = usage.cpu_s(parts)
        return cls(sum(used[part] for part in parts if part != "kafka"), used.get("kafka", 0.0))

    def since(self, before: Self) -> "Cpu":
        """Return what was used after `before`."""
        return Cpu(self.own - before.own, self.kafka - before.kafka)


@dataclass
class Phase:
    """Sessions at one rate for a while, and what came of them."""

    sent: Sent
    window: tuple[float, float]
    cpu_s: Cpu

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
            "cpu": 1e6 * self.cpu_s.own / (found.sessions * EVENTS),
            "cores": self.cpu_s.own / (end - begin),
            "cores_kafka": self.cpu_s.kafka / (end - begin),
        }


def checked(found: dict[str, float]) -> dict[str, float]:
    """Return a round. Raises SendersBehindError where its load was not the one asked for."""
    if found["behind_s"] > MOST_BEHIND_S:
        raise SendersBehindError(
            f"the senders were up to {found['behind_s']:.2f} s behind: the machine cannot send at this rate beside the contender"
        )
    return found


@contextmanager
def warmed(
    bench: Bench, contender: Contender, partitions: int, rate: float = 100.0, settle_s: float = 0.0
) -> Iterator[Run]:
    """Start a contender on an empty topic, and send sessions until the first can be read and for `settle_s` more seconds."""
    topic = bench.input_topic(partitions)
    with bench.running(contender, topic) as run:
        with Senders(bench.servers.bootstrap_servers, topic, rate, f"w{uuid4().hex[:6]}-") as senders:
            if not run.wait_for(1, _FIRST_S):
                raise RuntimeError(f"no output within {_FIRST_S:g} s")
            run.wait(settle_s)
            run.sent(senders.stop())
        run.wait_for_all(_LAST_S)
        yield run


def phase(
    run: Run, rate: float, warm_up_s: float, seconds: float, is_enough: Callable[[], bool] = lambda: False
) -> Phase:
    """Send at a rate: for `warm_up_s` that do not count, then for `seconds`; then wait for what is under way, five minutes at the most.

    `is_enough`: asked again and again in those seconds; true ends them.
    """
    with Senders(run.servers.bootstrap_servers, run.topic, rate, f"l{uuid4().hex[:6]}-") as senders:
        run.wait(BEGIN_S + warm_up_s)
        begin, before = time.time(), Cpu.used(run)
        run.wait(seconds, is_enough)
        end, used = time.time(), Cpu.used(run).since(before)
        sent = senders.stop()
    run.sent(sent)
    if not run.wait_for_all(_LAST_S):
        screen.print(f"  {len(run.ends) - run.watcher.sessions:,} sessions have not come after {_LAST_S:g} s")
    return Phase(sent, (begin, end), used)


def measure(
    bench: Bench,
    contender: Contender,
    rates: Sequence[float],
    failures: FailedRounds,
    *,
    partitions: int,
    settle_s: float,
    warm_up_s: float,
    seconds: float,
) -> Iterator[tuple[float, dict[str, float]]]:
    """Yield (rate, measures), each rate after the other on the same contender, which has run for `settle_s` seconds by then.

    A rate that fails is noted in `failures`, and the rates after it are measured on a new start; so is one that could not be sent. Raises
    RuntimeError where the contender does not start.
    """
    left = list(rates)
    while left:
        phases: dict[float, Phase] = {}
        has_failed = False
        with warmed(bench, contender, partitions, settle_s=settle_s) as run:
            while left and not has_failed:
                rate, has_failed = left.pop(0), True
                with failures.tolerated(_at(contender, rate)):
                    phases[rate] = phase(run, rate, warm_up_s, seconds)
                    has_failed = False
            received = run.watcher.stop().received
        if not phases:
            continue
        whole = completeness(bench.servers.bootstrap_servers, run.ends)
        if has_failed:
            # Outputs of what was sent at the rate that failed look like it.
            del whole["strange"]
        for rate, one in phases.items():
            try:
                yield rate, checked(one.measured(received)) | whole
            except SendersBehindError as error:
                failures.add(_at(contender, rate), error)


def expected_s(rates: int, settle_s: float, warm_up_s: float, seconds: float) -> float:
    """Return how long so many rates will take, without the start."""
    return settle_s + rates * (BEGIN_S + warm_up_s + seconds + DRAIN_S)


def _at(contender: Contender, rate: float) -> str:
    return f"{contender.name}, {rate:g} sessions/s"
