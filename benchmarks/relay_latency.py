"""Latency of an idle lane's first event through the publisher, beside a bare librdkafka transactional producer.

    python -m benchmarks.relay_latency [--batches 200] [--rate 5] [--lanes 8]

A real `publisher run` waits at an empty outbox. Batches of a single session are committed one by one, as the job commits
them; timed is from the moment that COMMIT returns to the session's first event in the hands of a `read_committed` consumer.
Between two batches a bare producer sends an equal session in a transaction of its own, timed from before its begin, to the same
consumer. Postgres runs with fsync. Run it alone on the machine.
"""

import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Annotated

import typer
from confluent_kafka import Consumer, TopicPartition

from benchmarks.support.outbox import (
    PARTITIONS,
    SyntheticOutbox,
    produce_bare,
    synthetic_outbox,
    values_of,
    wait_for_lanes,
)
from benchmarks.support.report import Report
from benchmarks.support.servers import publisher_process
from devstack.stack import Stack
from service import logs
from service.settings import LogSettings, PublisherSettings

LABELS = {"p50_ms": "p50, ms", "p90_ms": "p90, ms", "p99_ms": "p99, ms"}
WARM_UP = 20
ARRIVAL_S = 60.0


class Arrivals:
    """A read_committed consumer of both topics; notes when the first event of each session arrives."""

    def __init__(self, outbox: SyntheticOutbox) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": outbox.settings.kafka.bootstrap_servers,
                "group.id": "relay-latency",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 10,
            }
        )
        self._consumer.assign(
            [
                TopicPartition(topic, p, 0)
                for topic in (outbox.topic, outbox.bare_topic)
                for p in range(PARTITIONS)
            ]
        )
        self._seen: dict[tuple[str, bytes], float] = {}
        self._came = threading.Condition()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._stop.is_set():
            message = self._consumer.poll(0.2)
            now = time.perf_counter()
            if message is None or message.error() is not None:
                continue
            with self._came:
                self._seen.setdefault((message.topic() or "", message.key() or b""), now)
                self._came.notify_all()

    def wait_for(self, topic: str, session: int) -> float:
        """Return when the first event of a session came (time.perf_counter)."""
        key = (topic, b"session-%010d" % session)
        with self._came:
            if not self._came.wait_for(lambda: key in self._seen, ARRIVAL_S):
                raise SystemExit(f"session {session} did not arrive in {topic} within {ARRIVAL_S:g} s")
            return self._seen[key]

    def __enter__(self) -> "Arrivals":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()


def measure(outbox: SyntheticOutbox, batches: int, rate: float) -> tuple[list[float], list[float]]:
    """Return (bare, relay) latencies in milliseconds."""
    bare: list[float] = []
    relay: list[float] = []
    producer = outbox.bare_producer()
    with Arrivals(outbox) as arrivals, outbox.connect() as writer:
        for number in range(WARM_UP + batches):
            due = time.perf_counter() + 1 / rate
            session = outbox.commit_one(writer)
            began = time.perf_counter()
            through = arrivals.wait_for(outbox.topic, session) - began
            # In the middle between two batches, so that neither meets the other's aftermath.
            time.sleep(max(0.0, due - 0.5 / rate - time.perf_counter()))
            values = values_of(session)
            began = time.perf_counter()
            producer.begin_transaction()
            produce_bare(producer, outbox.bare_topic, session, values)
            producer.commit_transaction()
            without = arrivals.wait_for(outbox.bare_topic, session) - began
            if number >= WARM_UP:
                bare.append(1e3 * without)
                relay.append(1e3 * through)
            time.sleep(max(0.0, due - time.perf_counter()))
    return bare, relay


def main(
    batches: Annotated[int, typer.Option(min=10, help="Batches of one session.")] = 200,
    rate: Annotated[float, typer.Option(min=0.1, help="Batches a second.")] = 5.0,
    lanes: Annotated[int, typer.Option(min=1, help="Lanes of the outbox.")] = 8,
    page: Annotated[Path | None, typer.Option(help="Also put the table into this page.", exists=True)] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print one line of JSON instead of the table.")
    ] = False,
) -> None:
    """Measure and print."""
    logs.configure(LogSettings(level="WARNING"))
    report = Report("relay-latency", {"batches": batches, "batches/s": rate, "lanes": lanes}, LABELS)
    with (
        tempfile.TemporaryDirectory(prefix="relay-latency-") as directory,
        Stack.from_environment_or_start(Path(directory), heap="1g") as stack,
        synthetic_outbox(stack, lanes, PublisherSettings()) as outbox,
        publisher_process(outbox.settings, Path(directory) / "publisher.log"),
    ):
        wait_for_lanes(outbox, 1, 60)
        bare, relay = measure(outbox, batches, rate)
    for name, found in (("publisher", relay), ("bare producer", bare)):
        cuts = statistics.quantiles(found, n=100)
        report.add(name, {f"p{p}_ms": cuts[p - 1] for p in (50, 90, 99)})
    report.finish(page, as_json=json)


if __name__ == "__main__":
    typer.run(main)
