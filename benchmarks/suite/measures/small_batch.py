"""What a small batch of ours costs: the CPU of each part at a low rate, divided by the batches that the ledger has of the same time."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import psycopg

from benchmarks.peers.contender import Contender
from benchmarks.peers.ours import JOB, POSTGRES, RunningOurs
from benchmarks.suite.load import usage
from benchmarks.suite.load.senders import Senders
from benchmarks.suite.load.workload import COMPLETENESS, Bench, Run, completeness
from benchmarks.suite.measures.latency import DRAIN_S, warmed

TITLE = "CPU of a small batch"
LABELS = {
    "batches": "batches",
    "events": "input events of a batch",
    "cpu_job": "CPU of a batch, job, ms",
    "cpu_job_jvm": "of which the JVM",
    "cpu_job_driver": "of which the driver's Python",
    "cpu_job_workers": "of which Spark's Python workers",
    "cpu_postgres": "CPU of a batch, Postgres, ms",
    "cpu_kafka": "CPU of a batch, Kafka with the senders' and readers' requests, ms",
    **COMPLETENESS,
}
_PARTS = (JOB, f"{JOB}_jvm", f"{JOB}_driver", f"{JOB}_workers", POSTGRES, "kafka")
_LAST_S = 300.0
_WRITTEN = """
SELECT count(*), coalesce(sum(input_events), 0)::bigint FROM outbox.batch WHERE kind = 'stream' AND part = 0
"""


@dataclass(frozen=True)
class Spent:
    """What had been spent up to a moment."""

    cpu_s: Mapping[str, float]
    """By part, since the start of its processes."""
    batches: int
    events: int

    @classmethod
    def by(cls, run: Run) -> Self:
        """Ask the system and the ledger now. Raises ValueError for a contender that has none."""
        if not isinstance(run.contender, RunningOurs):
            raise ValueError("only ours has batches that a ledger counts")
        with psycopg.connect(run.contender.dsn, autocommit=True) as connection:
            row = connection.execute(_WRITTEN).fetchone()
        assert row is not None
        return cls(usage.cpu_s(run.parts()), *row)

    def of_a_batch(self, before: Self) -> dict[str, float]:
        """Return what each batch after `before` took, CPU in ms. Raises ValueError where there was none."""
        batches = self.batches - before.batches
        if not batches:
            raise ValueError("no batch was committed between the two moments")
        cpu = {
            f"cpu_{part}": 1e3 * (self.cpu_s[part] - before.cpu_s.get(part, 0.0)) / batches for part in _PARTS
        }
        return {"batches": batches, "events": (self.events - before.events) / batches, **cpu}


def measure(
    bench: Bench, contender: Contender, *, partitions: int, rate: float, settle_s: float, seconds: float
) -> dict[str, float]:
    """Send `rate` sessions a second, for `settle_s` seconds that do not count, then for `seconds`.

    Raises ValueError for a contender that has no batches, RuntimeError where it does not start.
    """
    with warmed(bench, contender, partitions, rate) as run:
        with Senders(bench.servers.bootstrap_servers, run.topic, rate, "small-") as senders:
            run.wait(settle_s)
            before = Spent.by(run)
            run.wait(seconds)
            found = Spent.by(run).of_a_batch(before)
            run.sent(senders.stop())
        run.wait_for_all(_LAST_S)
        run.watcher.stop()
    return found | completeness(bench.servers.bootstrap_servers, run.ends)


def expected_s(settle_s: float, seconds: float) -> float:
    """Return how long it will take, without the start."""
    return settle_s + seconds + DRAIN_S
