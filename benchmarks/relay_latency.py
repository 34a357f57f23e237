"""Latency of an idle lane's first event through the publisher, beside a bare librdkafka transactional producer.

    python -m benchmarks.relay_latency [--batches 200] [--rounds 1] [--rate 5] [--lanes 8] [--debezium] [--exactly-once]

A real `publisher run` waits at an empty outbox. Batches of a single session are committed one by one, as the job commits
them; timed is from the moment that COMMIT returns to the session's first event in the hands of a `read_committed` consumer.
Between two batches a bare producer sends an equal session in a transaction of its own, timed from before its begin, to the same
consumer. Postgres runs with fsync. Run it alone on the machine.

With `--debezium`, a third of the time between two batches later, an equal session is committed to the table of Debezium's outbox event
router (benchmarks/peers/debezium), which waits beside the publisher; `--exactly-once` does the same in Kafka Connect's transactions.
"""

import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import psycopg
import typer
from confluent_kafka import OFFSET_BEGINNING

from benchmarks.peers.debezium.connect import connect_worker
from benchmarks.peers.debezium.settings import Choice, debezium_choices
from benchmarks.peers.debezium.table import LOGICAL, debezium_table
from benchmarks.peers.registry import OURS
from benchmarks.suite.options import Folder
from benchmarks.suite.results import RESULTS, measurement
from benchmarks.support.arrivals import Arrivals
from benchmarks.support.outbox import (
    BARE,
    SyntheticOutbox,
    produce_bare,
    synthetic_outbox,
    values_of,
    wait_for_lanes,
)
from benchmarks.support.rounds import announce
from benchmarks.support.servers import publisher_process
from devstack.stack import Stack
from service.observability import logs
from service.settings import LogSettings, PublisherSettings

LABELS = {"p50_ms": "p50, ms", "p90_ms": "p90, ms", "p99_ms": "p99, ms"}
WARM_UP = 20


@dataclass(frozen=True)
class Way:
    """One way from a session to the consumer."""

    name: str
    topic: str
    send: Callable[[], tuple[int, float]]
    """Send a session; return its number and the moment from which it counts (time.perf_counter)."""


def measure(ways: Sequence[Way], arrivals: Arrivals, batches: int, rate: float) -> dict[str, list[float]]:
    """Return {way: latencies in milliseconds}. The ways take turns, evenly spread, so that none meets another's aftermath."""
    found: dict[str, list[float]] = {way.name: [] for way in ways}
    step = 1 / (rate * len(ways))
    due = time.perf_counter()
    for _ in range(batches):
        for way in ways:
            time.sleep(max(0.0, due - time.perf_counter()))
            # Later where a session took longer than its turn.
            due = max(due, time.perf_counter()) + step
            session, began = way.send()
            found[way.name].append(1e3 * (arrivals.wait_for(way.topic, session) - began))
    return found


def _through_publisher(outbox: SyntheticOutbox, running: ExitStack) -> Way:
    writer = running.enter_context(outbox.connect())

    def send() -> tuple[int, float]:
        return outbox.commit(writer), time.perf_counter()

    return Way(OURS, outbox.topic, send)


def _through_debezium(stack: Stack, choice: Choice, folder: Path, running: ExitStack) -> Way:
    table = running.enter_context(debezium_table(stack))
    worker = running.enter_context(connect_worker(stack.kafka.bootstrap_servers, folder, table.topic, choice))
    worker.create_connector(table.dsn)
    writer = running.enter_context(psycopg.connect(table.dsn, autocommit=True))

    def send() -> tuple[int, float]:
        return table.commit_one(writer), time.perf_counter()

    return Way(choice.name, table.topic, send)


def _bare(outbox: SyntheticOutbox) -> Way:
    producer, numbers = outbox.bare_producer(), itertools.count()

    def send() -> tuple[int, float]:
        session = next(numbers)
        values = values_of(session)
        began = time.perf_counter()
        producer.begin_transaction()
        produce_bare(producer, outbox.bare_topic, session, values)
        producer.commit_transaction()
        return session, began

    return Way(BARE, outbox.bare_topic, send)


def main(
    batches: Annotated[int, typer.Option(min=10, help="Batches of one session, in each round.")] = 200,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds; the medians of their percentiles count.")] = 1,
    rate: Annotated[float, typer.Option(min=0.1, help="Batches a second.")] = 5.0,
    lanes: Annotated[int, typer.Option(min=1, help="Lanes of the outbox.")] = 8,
    debezium: Annotated[bool, typer.Option(help="Measure Debezium's outbox event router too.")] = False,
    exactly_once: Annotated[bool, typer.Option(help="And Debezium in Kafka Connect's transactions.")] = False,
    folder: Folder = RESULTS,
) -> None:
    """Measure and print."""
    logs.configure(LogSettings(level="WARNING"))
    choices = debezium_choices(debezium, exactly_once)
    parameters = {"batches": batches, "batches/s": rate, "lanes": lanes}
    title = "The publisher: an idle lane's first event"
    with (
        measurement(folder, "relay-latency", title, LABELS, parameters) as (kept, failures),
        ExitStack() as running,
    ):
        directory = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="relay-latency-")))
        settings = LOGICAL if choices else None
        stack = running.enter_context(
            Stack.from_environment_or_start(directory, heap="1g", postgres_settings=settings)
        )
        outbox = running.enter_context(synthetic_outbox(stack, lanes, PublisherSettings()))
        running.enter_context(publisher_process(outbox.settings, directory / "publisher.log"))
        wait_for_lanes(outbox, 1, 60)
        ways = [_through_publisher(outbox, running)]
        ways += [_through_debezium(stack, choice, directory, running) for choice in choices]
        ways.append(_bare(outbox))
        arrivals = running.enter_context(
            Arrivals(stack.kafka.bootstrap_servers, [way.topic for way in ways], OFFSET_BEGINNING, 1)
        )
        measure(ways, arrivals, WARM_UP, rate)
        by_name = {way.name: way for way in ways}
        turns = [name for name, _ in kept.missing(list(by_name), rounds)]
        together = [turns[first : first + len(ways)] for first in range(0, len(turns), len(ways))]
        announce(len(together) * batches / rate, len(together))
        for turn in together:
            with failures.tolerated(", ".join(turn)) as load:
                for name, found in measure([by_name[each] for each in turn], arrivals, batches, rate).items():
                    cuts = statistics.quantiles(found, n=100)
                    kept.add(name, {f"p{p}_ms": cuts[p - 1] for p in (50, 90, 99)}, load_before=load)


if __name__ == "__main__":
    typer.run(main)
