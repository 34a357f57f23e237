"""Outages: a contender that catches up with what arrived meanwhile; one that was away for longer than its transactions may be open."""

import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from benchmarks.peers.contender import Contender, RunningContender
from benchmarks.suite.load.senders import Senders
from benchmarks.suite.load.workload import COMPLETENESS, OUTPUT_PARTITIONS, Bench, Run, completeness
from benchmarks.suite.measures.latency import warmed
from benchmarks.support.rounds import screen
from benchmarks.transforms import TOPIC

CATCH_UP_TITLE = "Away while sessions arrive, then catching up"
CATCH_UP = {
    "backlog": "sessions that waited at the end of the outage",
    "first_s": "start to the first output, s",
    "caught_up_s": "start until no session was over two seconds late, s",
    "rate": "sessions/s delivered from the first output until then",
    **COMPLETENESS,
}
OUTAGE_TITLE = "Away for longer than a Kafka transaction may be open"
OUTAGE = {
    "expected": "outputs expected",
    **COMPLETENESS,
    "blocked_s": "how long after the kill an open transaction held up read_committed readers, s",
    "back_s": "start to the first new output, s",
}
_LATE_S = 2.0
_SETTLE_S = 5.0
_LONGEST_S = 900.0
_BACK_S = 240.0
_STILL_S = 60.0
"""Nothing has come for so long: the rest is lost. On a busy machine a batch after a start alone may take half a minute."""
_SWEEP_S = 12.0
"""The broker looks for transactions that were open too long every 10 s."""


def _all_parts(running: RunningContender) -> list[str]:
    """What is the contender's own: servers that it uses stay."""
    return [part for part in running.pids() if part not in ("postgres", "executors")]


def catch_up(
    bench: Bench, contender: Contender, *, outage_s: float, rate: float, hurry: float, partitions: int
) -> dict[str, float]:
    """Kill it, let `outage_s` x `rate` sessions arrive, start it again while sessions go on at `rate`, and wait until none is late.

    `hurry`: the sessions of the outage arrive so many times as fast, because nobody learns anything from waiting for them.
    """
    bootstrap = bench.servers.bootstrap_servers
    with warmed(bench, contender, partitions, rate) as run:
        parts = _all_parts(run.contender)
        for part in parts:
            run.contender.kill(part)
        with Senders(bootstrap, run.topic, rate * hurry, f"o{uuid4().hex[:6]}-") as senders:
            time.sleep(outage_s / hurry)
            waiting = senders.stop()
        run.sent(waiting)
        before = run.watcher.sessions
        with Senders(bootstrap, run.topic, rate, f"o{uuid4().hex[:6]}-") as senders:
            started = time.time()
            for part in parts:
                run.contender.start(part)
            _wait_until_none_is_late(run, before + len(waiting.ends), rate)
            run.wait(_SETTLE_S)
            later = senders.stop()
        run.sent(later)
        run.wait_for_all(_LONGEST_S)
        received = run.watcher.stop().received
    ends = {**waiting.ends, **later.ends}
    came = sorted(received[key] for key in ends if key in received and received[key] >= started)
    late = [
        received[key]
        for key, end in ends.items()
        if key in received and received[key] - max(end.at_broker_s, started) > _LATE_S
    ]
    caught_up = max(late, default=came[0])
    delivered = sum(moment <= caught_up for moment in came)
    return {
        "backlog": len(waiting.ends),
        "first_s": came[0] - started,
        "caught_up_s": caught_up - started,
        "rate": delivered / max(caught_up - came[0], 1e-3),
        **completeness(bootstrap, run.ends),
    }


def expected_catch_up_s(outage_s: float, rate: float, hurry: float) -> float:
    """Return how long a catching up will take, without the start."""
    return outage_s / hurry + outage_s * rate / 2_000 + 20.0


def expected_s(timeout_s: int) -> float:
    """Return how long an outage of that kind will take, without the start."""
    return timeout_s + _SWEEP_S + 3 * _SETTLE_S + 20.0 + _STILL_S / 2


def _wait_until_none_is_late(run: Run, backlog: int, rate: float) -> None:
    """The backlog has come; and then as many sessions as arrive in a second, twice over, as fast as they arrive."""
    if not run.wait_for(backlog, _LONGEST_S):
        raise RuntimeError(f"the backlog has not come within {_LONGEST_S:g} s")
    deadline = time.monotonic() + _LONGEST_S
    while time.monotonic() < deadline:
        before = run.watcher.sessions
        run.wait(2.0)
        # What still catches up is faster than what arrives.
        if run.watcher.sessions - before < 2.0 * rate * 1.2:
            return
    raise RuntimeError(f"still catching up after {_LONGEST_S:g} s")


def beyond_timeout(
    bench: Bench, contender: Contender, *, timeout_s: int, rate: float, partitions: int
) -> dict[str, float]:
    """Kill all of it between the preparation of outputs and their commit as near as can be, and keep it away for longer than `timeout_s`.

    Where the contender keeps checkpoints in its folder, the moment is that at which one was completed: then its outputs are prepared,
    and the commit comes next; else that at which an open transaction has records. Afterwards it is started again, and all outputs are
    compared with what they have to be.
    """
    bootstrap = bench.servers.bootstrap_servers
    with warmed(bench, contender, partitions, rate) as run:
        parts = _all_parts(run.contender)
        with Senders(bootstrap, run.topic, rate, f"t{uuid4().hex[:6]}-") as senders:
            run.wait(_SETTLE_S)
            # Asked for beforehand: to find them takes longer than a commit.
            pids = [pid for part in parts for pid in run.contender.pids()[part]]
            _await_unfinished(bootstrap, run.folder)
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
            for part in parts:
                run.contender.kill(part)
            killed = time.time()
            blocked_s = _blocked(bootstrap, timeout_s + _SWEEP_S)
            started = time.time()
            for part in parts:
                run.contender.start(part)
            try:
                if run.wait_for(run.watcher.sessions + int(2 * rate), _BACK_S):
                    run.wait(_SETTLE_S)
            except RuntimeError as error:  # a peer that does not come back is a result
                screen.print(f"  {error}", markup=False)
            run.sent(senders.stop())
        _wait_while_it_moves(run)
        received = run.watcher.stop().received
    first = min((at for key, at in received.items() if at >= started), default=float("inf"))
    screen.print(f"  away for {started - killed:.0f} s")
    return {
        "expected": len(run.ends) * 20,
        **completeness(bootstrap, run.ends),
        "blocked_s": blocked_s,
        "back_s": first - started,
    }


def _wait_while_it_moves(run: Run) -> None:
    """Until all has come, or nothing has come for a while: then the rest is lost."""
    before = -1
    while before < (now := run.watcher.sessions) < len(run.ends):
        before = now
        with suppress(RuntimeError):
            run.wait_for_all(_STILL_S)


def _await_unfinished(bootstrap_servers: str, folder: Path, longest_s: float = 30.0) -> None:
    """Return at a moment at which outputs are prepared and perhaps not committed.

    With checkpoints below the folder: when one was completed. Else: when an open transaction has records.
    """

    def completed() -> set[Path]:
        with suppress(OSError):
            return set(folder.glob("*/*/chk-*/_metadata"))
        return set()

    known = completed()
    client = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 3})
    deadline = time.monotonic() + longest_s
    while time.monotonic() < deadline:
        if known:
            if completed() - known:
                return
            time.sleep(0.0005)
        elif _is_open(client):
            return


def _is_open(client: AdminClient) -> bool:
    """Whether an open transaction keeps records from read_committed readers."""
    return _ends(client, IsolationLevel.READ_COMMITTED) != _ends(client, IsolationLevel.READ_UNCOMMITTED)


def _blocked(bootstrap_servers: str, seconds: float) -> float:
    """Watch for so long; return for how much of it an open transaction kept records from read_committed readers."""
    client = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 3})
    began = time.monotonic()
    blocked = 0.0
    while (now := time.monotonic()) - began < seconds:
        if _is_open(client):
            blocked = now - began
        time.sleep(0.25)
    return blocked


def _ends(client: AdminClient, isolation: IsolationLevel) -> Sequence[int]:
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    asked = client.list_offsets(
        {TopicPartition(TOPIC, number): latest for number in range(OUTPUT_PARTITIONS)},
        isolation_level=isolation,
    )
    return [
        asked_one.result().offset for _, asked_one in sorted(asked.items(), key=lambda one: one[0].partition)
    ]
