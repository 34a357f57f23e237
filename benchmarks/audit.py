"""Events per second of `publisher audit --kafka`, beside a plain consumer loop over the same topic.

    python -m benchmarks.audit [--rows 40000] [--rounds 3]

An outbox is filled with rows of 20 events of 178 bytes and delivered by the real publisher. In every round a consumer reads the topic
and touches key, value and headers of each record; then the audit runs in a process of its own. `read_ratio` is the audit's reading of
the topic by the plain loop's rate; `whole_events_per_s` is the whole audit, the checks in SQL included. Run it alone on the machine.
"""

import argparse
import json
import multiprocessing
import resource
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from confluent_kafka import TopicPartition
from pydantic import SecretStr

from benchmarks.relay import EVENTS, PARTITIONS, fill, relay
from db import logs
from db.connection import connect
from db.settings import KafkaSettings, LogSettings, PostgresSettings, PublisherSettings, Settings
from devstack.stack import Stack
from devstack.topics import create_topics
from publisher.audit.audit import Request, audit
from publisher.audit.scope import Limits
from publisher.clients import progress_consumer


def settings_for(dsn: str, bootstrap: str) -> Settings:
    """Built without the environment, which would win and may name the servers of the run."""
    return Settings.model_construct(
        postgres=PostgresSettings(dsn=SecretStr(dsn)),
        kafka=KafkaSettings(bootstrap_servers=bootstrap),
        publisher=PublisherSettings(),
    )


def plain(settings: Settings, topic: str, events: int) -> float:
    """Read the topic with a plain loop; return events/s."""
    consumer = progress_consumer(settings.kafka)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    began, seen, size = time.perf_counter(), 0, 0
    while seen < events:
        for message in consumer.consume(10_000, timeout=1.0):
            if message.error() is None:
                size += len(message.key() or b"") + len(message.value() or b"") + len(message.headers() or ())
                seen += 1
    rate = seen / (time.perf_counter() - began)
    consumer.close()
    return rate


def audited(dsn: str, bootstrap: str) -> dict[str, float]:
    """Audit in this process; return seconds by phase and the peak memory in MB."""
    began: dict[str, float] = {}

    def phase(name: str, steps: int) -> Callable[[int], None]:
        began[name] = time.perf_counter()
        return lambda done: None

    settings = settings_for(dsn, bootstrap)
    start = time.perf_counter()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with connect(settings.postgres, "benchmark", autocommit=True) as connection:
        report = audit(connection, settings, Request(Limits(), True, None, Path("lost")), phase)
    end = time.perf_counter()
    if not report.clean:
        raise RuntimeError(f"not clean: {[check for check in report.checks if check.failed]}")
    names = [*began]
    edges = [*began.values(), end]
    found = {name: edges[n + 1] - edges[n] for n, name in enumerate(names)}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return found | {"whole": end - start, "mb_before": before / 1024, "mb": peak / 1024}


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
    rounds: list[tuple[float, dict[str, float]]] = []
    with (
        tempfile.TemporaryDirectory(prefix="audit-bench-") as directory,
        Stack.from_environment_or_start(Path(directory), fast=True, heap="1g") as stack,
    ):
        name = f"bench_{uuid.uuid4().hex[:12]}"
        bootstrap = stack.kafka.bootstrap_servers
        create_topics(bootstrap, {name: (PARTITIONS, {})})
        dsn = stack.create_database(name)
        try:
            fill(dsn, name, options.rows, 4)
            with connect(settings_for(dsn, bootstrap).postgres, "benchmark", autocommit=True) as connection:
                connection.execute(COUNTS)
            relay(settings_for(dsn, bootstrap), events)
            spawn = multiprocessing.get_context("spawn")
            for number in range(options.rounds):
                rate = plain(settings_for(dsn, bootstrap), name, events)
                with ProcessPoolExecutor(1, mp_context=spawn) as process:
                    found = process.submit(audited, dsn, bootstrap).result()
                rounds.append((rate, found))
                sys.stderr.write(
                    f"round {number + 1}: plain {rate:,.0f}/s, audit's reading {events / found['reading the topics back']:,.0f}/s, "
                    f"{ {key: round(value, 2) for key, value in found.items()} }\n"
                )
        finally:
            stack.postgres.drop_database(name)

    def median(of: Callable[[float, dict[str, float]], float]) -> float:
        return round(statistics.median(of(rate, found) for rate, found in rounds), 3)

    result = {
        "benchmark": "audit",
        "events": events,
        "plain_events_per_s": median(lambda rate, found: rate),
        "read_events_per_s": median(lambda rate, found: events / found["reading the topics back"]),
        "read_ratio": median(lambda rate, found: events / found["reading the topics back"] / rate),
        "outbox_events_per_s": median(lambda rate, found: events / found["reading the outbox"]),
        "compare_events_per_s": median(lambda rate, found: events / found["comparing"]),
        "whole_events_per_s": median(lambda rate, found: events / found["whole"]),
        "whole_ratio": median(lambda rate, found: events / found["whole"] / rate),
        "peak_mb": median(lambda rate, found: found["mb"]),
        "mb_before": median(lambda rate, found: found["mb_before"]),
    }
    sys.stdout.write(json.dumps(result) + "\n")


COUNTS = """
UPDATE outbox.batch b SET sessions = r.sessions, output_events = r.events, output_bytes = r.bytes, spark_batch = b.spark_batch - 1
FROM (SELECT batch_id, count(*) AS sessions, sum(cardinality(topics)) AS events,
             sum((SELECT sum(length(v)) FROM unnest("values") v)) AS bytes
      FROM outbox.session_output GROUP BY batch_id) r
WHERE r.batch_id = b.batch_id
"""


if __name__ == "__main__":
    main()
