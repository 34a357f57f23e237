"""What a session costs each part, warm: CPU, memory, and what Postgres writes and keeps."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

import psutil
import psycopg
from psycopg.rows import TupleRow

from benchmarks.pipeline import cpu
from benchmarks.pipeline.checkout import OURS
from benchmarks.pipeline.services import Services, running
from benchmarks.support.report import Measured
from benchmarks.support.servers import Servers
from devstack.processes.port import LOOPBACK
from devstack.spark import SparkMaster, SparkWorker

_PARTS = {
    "job": "job",
    "executors": "executors of a cluster",
    "publisher": "publisher",
    "postgres": "Postgres",
    "kafka": "Kafka",
}
LABELS = (
    {"sessions_s": "sessions/s while it was measured"}
    | {f"cpu_{part}": f"CPU of a session, {name}, us" for part, name in _PARTS.items()}
    | {
        "wal": "WAL of a session, bytes",
        "stored": "outbox of a session, bytes",
        "backlog": "most sessions in the outbox that were not delivered",
    }
    | {f"memory_{part}": f"most memory, {name}, MB" for part, name in _PARTS.items()}
)
_EVERY_S = 0.5
_LONGEST_S = 900
_WRITTEN = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8, pg_database_size(current_database())::float8"
_IN_LEDGER = "SELECT coalesce(sum(sessions), 0)::bigint FROM outbox.batch"


@dataclass(frozen=True)
class Used:
    """What was used up to a moment."""

    at_s: float
    delivered: int
    in_ledger: int
    cpu_s: dict[str, float]
    wal_bytes: float
    stored_bytes: float


@contextmanager
def cluster(servers: Servers, workers: int) -> Iterator[tuple[dict[str, str], list[SparkWorker]]]:
    """Start a Spark cluster of so many workers of one core; yield the settings that send the tasks there. 0: none."""
    with ExitStack() as running:
        if not workers:
            yield {}, []
            return
        folder = servers.folder / "spark"
        master = running.enter_context(SparkMaster(folder / "master"))
        made = [SparkWorker(folder / f"worker-{number}", master, number) for number in range(1, workers + 1)]
        for worker in made:
            running.enter_context(worker)
        options = {"spark.driver.host": LOOPBACK, "spark.executor.memory": "1g"}
        yield (
            {"JOB__MASTER": master.url, "JOB__CACHE": "cache", "JOB__SPARK_OPTIONS": json.dumps(options)},
            made,
        )


def measure(
    servers: Servers, topic: str, settings: Mapping[str, str], sessions: int, workers: Sequence[SparkWorker]
) -> Measured:
    """Deliver all of the topic's sessions. Counted: from the moment a third of them is delivered to the last one."""
    with running(servers, OURS, topic, settings) as services:
        roots = {part: [pid] for part, pid in services.pids().items()}
        postgres, kafka = servers.stack.local_servers
        roots |= {"postgres": [postgres.process.identity.pid], "kafka": [kafka.process.identity.pid]}
        if workers:
            roots["executors"] = [worker.process.identity.pid for worker in workers]
        memory = dict.fromkeys(roots, 0.0)
        backlog, deadline = 0, time.monotonic() + _LONGEST_S
        begin: Used | None = None
        with psycopg.connect(services.dsn, autocommit=True) as connection:
            while (now := _used(services, connection, roots)).delivered < sessions:
                if time.monotonic() > deadline:
                    raise RuntimeError(f"only {now.delivered} sessions after {_LONGEST_S} s")
                services.check_alive()
                if begin is None and 3 * now.delivered >= sessions:
                    begin = now
                backlog = max(backlog, now.in_ledger - now.delivered)
                memory = {part: max(most, sum(map(_memory_mb, roots[part]))) for part, most in memory.items()}
                time.sleep(_EVERY_S)
    if begin is None:
        raise ValueError(f"{sessions} sessions are too few: they were delivered before anything was warm")
    most_memory = {f"memory_{part}": most for part, most in memory.items()}
    return {**costs(begin, now), "backlog": backlog, **most_memory}


def costs(begin: Used, end: Used) -> Measured:
    """What a session cost between two moments. CPU by sessions delivered, bytes by sessions written."""
    delivered, written = end.delivered - begin.delivered, end.in_ledger - begin.in_ledger
    cpu_us = {f"cpu_{part}": 1e6 * (used - begin.cpu_s[part]) / delivered for part, used in end.cpu_s.items()}
    return {
        "sessions_s": delivered / (end.at_s - begin.at_s),
        **cpu_us,
        "wal": (end.wal_bytes - begin.wal_bytes) / written,
        "stored": (end.stored_bytes - begin.stored_bytes) / written,
    }


def _used(
    services: Services, connection: psycopg.Connection[TupleRow], roots: Mapping[str, Sequence[int]]
) -> Used:
    sample = services.sample()
    ((wal, stored),) = connection.execute(_WRITTEN).fetchall()
    ((in_ledger,),) = connection.execute(_IN_LEDGER).fetchall()
    cpu_s = {part: sum(cpu.used_by(pid).total for pid in pids) for part, pids in roots.items()}
    return Used(sample.at_s, sample.delivered, in_ledger, cpu_s, wal, stored)


def _memory_mb(pid: int) -> float:
    """Of a process and all below it; what they share counts once."""
    root, total = psutil.Process(pid), 0
    for process in (root, *root.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            total += process.memory_full_info().pss
    return total / 1e6
