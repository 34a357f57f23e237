"""Events per second of `publisher audit --kafka`, beside a plain consumer loop over the same topic.

    python -m benchmarks.audit [--rows 40000] [--rounds 3]

An outbox is filled with rows of 20 events of 178 bytes and delivered by the real publisher. In every round a consumer reads the topic
and touches key, value and headers of each record; then the audit runs in a process of its own. `…_ratio` is the audit's rate by
the plain loop's: of its reading of the topic, and of the whole audit, the checks in SQL included; `…_cpu_ratio` is the same by CPU time of
the process. Run it alone on the machine.
"""

import argparse
import json
import multiprocessing
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import TopicPartition
from pydantic import SecretStr

from benchmarks.relay import measure_relay
from benchmarks.support.outbox import EVENTS, PARTITIONS, synthetic_outbox
from db.connection import connect
from devstack.stack import Stack
from publisher.audit.audit import AuditRequest, audit
from publisher.audit.scope import Limits
from publisher.kafka.clients import progress_consumer
from service import logs
from service.record_headers import headers_of
from service.settings import KafkaSettings, LogSettings, PostgresSettings, PublisherSettings, Settings

LANES = 4


class Cost(NamedTuple):
    """Seconds by the clock, and of CPU in all threads of the process."""

    wall_s: float
    cpu_s: float

    def __sub__(self, earlier: "Cost") -> "Cost":
        return Cost(self.wall_s - earlier.wall_s, self.cpu_s - earlier.cpu_s)


def now() -> Cost:
    """What was used so far."""
    return Cost(time.perf_counter(), time.process_time())


def settings_for(dsn: str, bootstrap: str) -> Settings:
    """Built without the environment, which would win and may name the servers of the run."""
    return Settings.model_construct(
        postgres=PostgresSettings(dsn=SecretStr(dsn)),
        kafka=KafkaSettings(bootstrap_servers=bootstrap),
        publisher=PublisherSettings(),
    )


def plain(settings: Settings, topic: str, events: int) -> Cost:
    """Read the topic with a plain loop."""
    consumer = progress_consumer(settings.kafka)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    began, seen, size = now(), 0, 0
    while seen < events:
        for message in consumer.consume(10_000, timeout=1.0):
            if message.error() is None:
                size += len(message.key() or b"") + len(message.value() or b"") + len(headers_of(message))
                seen += 1
    cost = now() - began
    consumer.close()
    return cost


def audited(dsn: str, bootstrap: str) -> tuple[dict[str, Cost], float, float]:
    """Audit in this process; return the cost by phase, and the memory before and at its peak, in MB."""
    began: dict[str, Cost] = {}

    def phase(name: str, steps: int) -> Callable[[int], None]:
        began[name] = now()
        return lambda done: None

    settings = settings_for(dsn, bootstrap)
    start = now()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with connect(settings.postgres, "benchmark", autocommit=True) as connection:
        report = audit(connection, settings, AuditRequest(Limits(), True, None, Path("lost")), phase)
    end = now()
    if not report.clean:
        raise RuntimeError(f"not clean: {[check for check in report.checks if check.failed]}")
    names = [*began]
    edges = [*began.values(), end]
    found = {name: edges[n + 1] - edges[n] for n, name in enumerate(names)}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return found | {"whole": end - start}, before / 1024, peak / 1024


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=40_000, help="rows of 20 events (default 40000)")
    parser.add_argument("--rounds", type=int, default=3, help="times both are measured (default 3)")
    options = parser.parse_args()
    logs.configure(LogSettings(level="WARNING"))
    events = options.rows * EVENTS
    rounds: list[dict[str, float]] = []
    with (
        tempfile.TemporaryDirectory(prefix="audit-bench-") as directory,
        Stack.from_environment_or_start(Path(directory), fast=True, heap="1g") as stack,
        synthetic_outbox(stack, LANES, PublisherSettings()) as outbox,
    ):
        measure_relay(outbox, options.rows, 1, Path(directory))
        with outbox.connect() as connection:
            connection.execute(COUNTS)
        spawn = multiprocessing.get_context("spawn")
        for number in range(options.rounds):
            baseline = plain(outbox.settings, outbox.topic, events)
            with ProcessPoolExecutor(1, mp_context=spawn) as process:
                costs, before, peak = process.submit(
                    audited, outbox.dsn, stack.kafka.bootstrap_servers
                ).result()
            rounds.append(figures(events, baseline, costs) | {"mb_before": before, "mb_peak": peak})
            sys.stderr.write(f"round {number + 1}: {json.dumps(rounds[-1])}\n")

    medians = {name: round(statistics.median(found[name] for found in rounds), 3) for name in rounds[0]}
    sys.stdout.write(json.dumps({"benchmark": "audit", "events": events} | medians) + "\n")


def figures(events: int, baseline: Cost, costs: dict[str, Cost]) -> dict[str, float]:
    """Events a second by the clock and by CPU of the plain loop and of each phase, and the ratios to the plain loop."""
    found: dict[str, float] = {}
    for name, cost in ({"plain": baseline} | costs).items():
        word = name.replace(" ", "_")
        found[f"{word}_events_per_s"] = round(events / cost.wall_s)
        found[f"{word}_events_per_cpu_s"] = round(events / cost.cpu_s)
        if name in ("reading the topics back", "whole"):
            found[f"{word}_ratio"] = round(baseline.wall_s / cost.wall_s, 3)
            found[f"{word}_cpu_ratio"] = round(baseline.cpu_s / cost.cpu_s, 3)
    return found


COUNTS = """
UPDATE outbox.batch b SET sessions = r.sessions, output_events = r.events, output_bytes = r.bytes
FROM (SELECT batch_id, count(*) AS sessions, sum(cardinality(topics)) AS events,
             sum((SELECT sum(length(v)) FROM unnest("values") v)) AS bytes
      FROM outbox.session_output GROUP BY batch_id) r
WHERE r.batch_id = b.batch_id
"""


if __name__ == "__main__":
    main()
