"""A backlog, as fast as it goes, by what a reader sees: sessions a second, warm and from the start, and what they cost each part."""

import time

from benchmarks.peers.contender import Contender
from benchmarks.peers.ours import RunningOurs
from benchmarks.suite.load import usage
from benchmarks.suite.load.watcher import Arrivals
from benchmarks.suite.load.workload import COMPLETENESS, EVENTS, Bench, Run, Workload, completeness
from benchmarks.support.rounds import screen

TITLE = "A backlog of sessions, as fast as it goes"
LABELS = {
    "warm": "sessions/s, warm",
    "whole": "sessions/s, from the start of the processes",
    "events_s": "input events/s, warm",
    "cpu": "CPU of an input event, warm, all parts but Kafka, us",
    "cpu_job": "of which the job",
    "cpu_job_jvm": "of the job the JVM",
    "cpu_job_workers": "of the job the Python workers",
    "cpu_job_driver": "of the job the driver",
    "cpu_executors": "of which Spark's executors of a cluster",
    "cpu_publisher": "of which the publisher",
    "cpu_postgres": "of which Postgres",
    "cpu_kafka": "CPU of an input event, Kafka, us",
    "wal_bytes": "WAL of a session, bytes",
    "stored_bytes": "outbox of a session, bytes",
    "backlog": "most sessions in the outbox that were not delivered",
    "memory": "most memory, all parts but Kafka, MB",
    "memory_job": "of which the job",
    "memory_executors": "of which the executors",
    "memory_publisher": "of which the publisher",
    "memory_postgres": "of which Postgres",
    "memory_kafka": "most memory, Kafka, MB",
    **COMPLETENESS,
}
_OF_A_PART = ("_jvm", "_workers", "_driver")
_LONGEST_S = 900.0
_LOOK_EVERY_S = 2.0
_LOOK_AT_MEMORY_EVERY_S = 10.0
"""The kernel walks through all pages of all processes: every two seconds that took a fifteenth of a core."""
_SHOW_EVERY_S = 10.0


class TooFewError(ValueError):
    """A backlog came at once, in a single batch: nothing of it was warm."""

    def __init__(self, sessions: int) -> None:
        super().__init__(
            f"{sessions} sessions are too few: they came before anything was warm; take more, "
            "or make the batches of ours smaller with --setting JOB__MAX_EVENTS_PER_BATCH=..."
        )


def measure(bench: Bench, contender: Contender, work: Workload, warm_until: float = 1.0) -> dict[str, float]:
    """Deliver all of the topic's sessions. Warm: from the moment a third of them can be read until that share of them can be."""
    last_warm = int(warm_until * work.sessions)
    with bench.running(contender, work.topic) as run:
        found = delivered(run, work, last_warm)
        arrivals = run.watcher.stop()
    whole = completeness(bench.servers.bootstrap_servers, work.ends)
    return speeds(arrivals, work.sessions, run.started_s, last_warm) | found | whole


def speeds(
    arrivals: Arrivals, sessions: int, started_s: float, warm_until: int | None = None
) -> dict[str, float]:
    """Return the rates by what the watcher saw. `warm_until`: so many sessions, else all.

    Raises TooFewError where the last warm session came with the first third.
    """
    begin_s, begun = arrivals.reached((sessions + 2) // 3)
    warm_s, warmed = arrivals.reached(warm_until or sessions)
    end_s, ended = arrivals.reached(sessions)
    if warm_s <= begin_s or warmed <= begun:
        raise TooFewError(sessions)
    warm = (warmed - begun) / (warm_s - begin_s)
    return {"warm": warm, "whole": ended / (end_s - started_s), "events_s": warm * EVENTS}


def expected_s(sessions: int) -> float:
    """Return how long it will take to fill the topic once and to deliver its sessions, with the slowest contenders among the others."""
    return sessions / 1_500


def delivered(run: Run, work: Workload, warm_until: int) -> dict[str, float]:
    """Wait for all, and return what the warm part cost, which ends when so many sessions can be read."""
    memory = usage.MemoryPeaks()
    dsn = run.contender.dsn if isinstance(run.contender, RunningOurs) else None
    begin: tuple[dict[str, float], int] | None = None
    end: tuple[dict[str, float], int] | None = None
    # Of the whole run: what a session takes there does not depend on what is warm, and the job may be far ahead of the reader.
    written = usage.Written.now(dsn) if dsn else None
    backlog = 0.0
    began = looked = looked_at_memory = shown = time.monotonic()
    while (sessions := run.watcher.sessions) < work.sessions:
        run.contender.check_alive()
        now = time.monotonic()
        if begin is None and 3 * sessions >= work.sessions:
            begin = (usage.cpu_s(run.parts()), sessions)
        if end is None and sessions >= warm_until:
            end = (usage.cpu_s(run.parts()), sessions)
        if now - looked > _LOOK_EVERY_S:
            looked = now
            if dsn:
                backlog = max(backlog, usage.Written.now(dsn).sessions - run.watcher.sessions)
        if now - looked_at_memory > _LOOK_AT_MEMORY_EVERY_S:
            looked_at_memory = now
            memory.look(run.parts())
        if now - shown > _SHOW_EVERY_S:
            shown = now
            screen.print(f"  {now - began:.0f} s: {sessions:,} sessions can be read")
        if now - began > _LONGEST_S:
            raise RuntimeError(f"only {sessions} of {work.sessions} sessions after {_LONGEST_S:g} s")
        time.sleep(0.05)
    end = end or (usage.cpu_s(run.parts()), work.sessions)
    memory.look(run.parts())
    if begin is None or end[1] <= begin[1]:
        raise TooFewError(work.sessions)
    found = usage.cpu_us(begin[0], end[0], (end[1] - begin[1]) * (work.entries + 2)) | memory.measured()
    found |= {"cpu": _all_but_kafka(found, "cpu_"), "memory": _all_but_kafka(found, "memory_")}
    if dsn and written:
        found |= usage.Written.now(dsn).of_a_session(written) | {"backlog": backlog}
    return found


def _all_but_kafka(found: dict[str, float], prefix: str) -> float:
    return sum(
        value
        for name, value in found.items()
        if name.startswith(prefix) and name != f"{prefix}kafka" and not name.endswith(_OF_A_PART)
    )
