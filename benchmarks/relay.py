"""Events per second through the publisher, beside a bare librdkafka transactional producer that sends the same bytes.

    python -m benchmarks.relay [--rows 40000] [--rounds 5] [--lanes 4] [--processes 1] [--debezium] [--exactly-once]

An outbox is filled with rows of 20 events of 178 bytes. In every round so many `publisher run` relay them, once all lanes are held, and as
many processes with a bare producer send the same: same topic layout, key, value, one `outbox-id` header, transactions of as many rows. Who
goes first alternates, and an unmeasured round warms the broker up. Both are timed from the end of their first transaction to the end of
their last. The CPU is that of the sending processes, librdkafka's threads included. Run it alone on the machine.

With `--debezium`, Debezium's outbox event router relays the same events in every round, from a table of its own that has a row for each
(benchmarks/peers/debezium); `--exactly-once` measures it in Kafka Connect's transactions too. Its worker is new in every round, and has
relayed some sessions before it is timed.
"""

import gc
import math
import multiprocessing
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, NamedTuple

import psycopg
import typer

from benchmarks.peers.debezium.connect import connect_worker
from benchmarks.peers.debezium.settings import ID_HEADER, Choice, debezium_choices
from benchmarks.peers.debezium.table import LOGICAL, debezium_table
from benchmarks.peers.registry import OURS
from benchmarks.suite.options import Folder
from benchmarks.suite.results import RESULTS, Measured, measurement
from benchmarks.support.outbox import (
    BARE,
    EVENTS,
    SyntheticOutbox,
    bare_producer,
    produce_bare,
    synthetic_outbox,
    values_of,
    wait_for_lanes,
)
from benchmarks.support.reading import tally_reader
from benchmarks.support.rounds import announce
from benchmarks.support.servers import cpu_s, peak_mb, publisher_process
from benchmarks.support.tally import Tally
from devstack.stack import Stack
from service.observability import logs
from service.settings import KafkaSettings, LogSettings, PublisherSettings, Settings

STALLED_S = 120.0


LABELS = {
    "events_s": "events/s",
    "cpu_us": "CPU of an event, us",
    "peak_mb": "most memory of a process, MB",
    "transactions": "Kafka transactions",
    "holders": "processes that held lanes",
}
_RATE = """
SELECT sum(events) FILTER (WHERE committed_at > began) / extract(epoch FROM max(committed_at) - min(began)), count(*)
FROM outbox.delivery, (SELECT min(committed_at) AS began FROM outbox.delivery WHERE events > 0) first
WHERE events > 0
"""
_DELIVERED = "SELECT coalesce(sum(events), 0) FROM outbox.delivery"
_SHARING_S = 20.0


class Sent(NamedTuple):
    """What one bare producer did. Seconds of time.perf_counter, which all processes share; events after the first transaction."""

    began: float
    ended: float
    events: int
    cpu_s: float
    peak_mb: float


def measure_relay(outbox: SyntheticOutbox, rows: int, processes: int, folder: Path) -> Measured:
    """Let so many publishers relay the rows."""
    hidden = outbox.hide(rows)
    with ExitStack() as running:
        publishers = [
            running.enter_context(publisher_process(outbox.settings, folder / f"{outbox.topic}-{number}.log"))
            for number in range(processes)
        ]
        holders = wait_for_lanes(outbox, processes, _SHARING_S)
        cpu_before = sum(map(cpu_s, publishers))
        hidden.show()
        wait_for(outbox.settings, rows * EVENTS)
        used = sum(map(cpu_s, publishers)) - cpu_before
        peak = max(map(peak_mb, publishers))
        with outbox.connect() as connection:
            rate = connection.execute(_RATE).fetchone()
    assert rate is not None
    return {
        "events_s": float(str(rate[0])),
        "cpu_us": 1e6 * used / (rows * EVENTS),
        "peak_mb": peak,
        "transactions": int(str(rate[1])),
        "holders": holders,
    }


def wait_for(settings: Settings, events: int) -> None:
    """Wait until so many events are delivered."""
    with psycopg.connect(settings.postgres.dsn.get_secret_value(), autocommit=True) as connection:
        while (row := connection.execute(_DELIVERED).fetchone()) is None or row[0] < events:
            time.sleep(0.05)


def measure_bare(outbox: SyntheticOutbox, rows: int, processes: int) -> Measured:
    """Send as many sessions with plain loops, in so many processes."""
    share, size = rows // processes, outbox.settings.publisher.transaction_sessions
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        work = [
            pool.submit(_send, outbox.settings.kafka, outbox.bare_topic, number * share, share, size)
            for number in range(processes)
        ]
        sent = [each.result() for each in work]
    seconds = max(each.ended for each in sent) - min(each.began for each in sent)
    return {
        "events_s": sum(each.events for each in sent) / seconds,
        "cpu_us": 1e6 * sum(each.cpu_s for each in sent) / (share * processes * EVENTS),
        "peak_mb": max(each.peak_mb for each in sent),
        "transactions": processes * math.ceil(share / size),
    }


def _send(kafka: KafkaSettings, topic: str, first: int, rows: int, size: int) -> Sent:
    producer = bare_producer(kafka)
    # All different, as rows are: the same few values again and again would never leave the processor's cache.
    values = [values_of(number) for number in range(first, first + rows)]
    gc.collect()
    gc.freeze()  # or it would look through all of them again and again
    began, events, began_cpu = 0.0, 0, time.process_time()
    for start in range(first, first + rows, size):
        producer.begin_transaction()
        last = min(start + size, first + rows)
        for number in range(start, last):
            produce_bare(producer, topic, number, values[number - first])
        producer.commit_transaction()
        if began:
            events += (last - start) * EVENTS
        else:
            began = time.perf_counter()
    return Sent(began, time.perf_counter(), events, time.process_time() - began_cpu, peak_mb())


def measure_debezium(stack: Stack, rows: int, warm_up: int, choice: Choice, folder: Path) -> Measured:
    """Let a new worker relay `warm_up` sessions, and time it at `rows` more. Raises SystemExit where events do not come."""
    bootstrap = stack.kafka.bootstrap_servers
    with debezium_table(stack) as table, connect_worker(bootstrap, folder, table.topic, choice) as worker:
        worker.create_connector(table.dsn)
        with tally_reader(bootstrap, table.topic, ID_HEADER, Tally(0, warm_up)) as reader:
            table.insert(warm_up)
            _wait(reader.until(lambda: not reader.tally.missing, STALLED_S))
        worker.stop_connector()
        table.insert(rows)
        before = cpu_s(worker.process)
        worker.resume_connector()
        with tally_reader(bootstrap, table.topic, ID_HEADER, Tally(warm_up, rows)) as reader:
            reader.wait_for_records((warm_up + rows) * EVENTS, STALLED_S)
            used = cpu_s(worker.process) - before
            peak = peak_mb(worker.process)
            _wait(reader.until(lambda: not reader.tally.missing, STALLED_S))
    return {
        "events_s": reader.events_s(),
        "cpu_us": 1e6 * used / (rows * EVENTS),
        "peak_mb": peak,
    }


def _wait(has_come: bool) -> None:
    if not has_come:
        raise SystemExit(f"Debezium sent nothing new for {STALLED_S:g} s, and events are missing")


def expected_s(rows: int, *, is_debezium: bool) -> float:
    """Return how long a round will take, with the rows made first."""
    return 30.0 + rows / 900 if is_debezium else 5.0 + rows / 8_000


def main(
    rows: Annotated[int, typer.Option(min=1_000, help="Rows of 20 events.")] = 40_000,
    rounds: Annotated[int, typer.Option(min=1, help="How often both are measured; the medians count.")] = 5,
    lanes: Annotated[int, typer.Option(min=1, help="Lanes of the outbox.")] = 4,
    transaction_sessions: Annotated[int, typer.Option(min=1, help="Rows of a transaction.")] = 1_000,
    processes: Annotated[int, typer.Option(min=1, help="Publishers, and bare producers.")] = 1,
    debezium: Annotated[bool, typer.Option(help="Measure Debezium's outbox event router too.")] = False,
    exactly_once: Annotated[bool, typer.Option(help="And Debezium in Kafka Connect's transactions.")] = False,
    warm_up: Annotated[int, typer.Option(min=1, help="Sessions that Debezium's JVM warms up with.")] = 5_000,
    folder: Folder = RESULTS,
) -> None:
    """Measure and print."""
    if rows < 2 * transaction_sessions * max(lanes, processes):
        raise typer.BadParameter(
            "--rows must be at least twice lanes x transaction-sessions, or there is nothing to time"
        )
    logs.configure(LogSettings(level="WARNING"))
    parameters = {
        "rows": rows,
        "lanes": lanes,
        "rows a transaction": transaction_sessions,
        "processes": processes,
    }
    choices = {each.name: each for each in debezium_choices(debezium, exactly_once)}
    with (
        measurement(folder, "relay", "The publisher: a backlog", LABELS, parameters) as (kept, failures),
        tempfile.TemporaryDirectory(prefix="relay-bench-") as directory,
        Stack.from_environment_or_start(
            Path(directory), fast=True, heap="1g", postgres_settings=LOGICAL if choices else None
        ) as stack,
    ):

        def measured(whose: str) -> Measured:
            if whose in choices:
                return measure_debezium(stack, rows, warm_up, choices[whose], Path(directory))
            publisher = PublisherSettings(transaction_sessions=transaction_sessions)
            with synthetic_outbox(stack, lanes, publisher) as outbox:
                if whose == OURS:
                    return measure_relay(outbox, rows, processes, Path(directory))
                return measure_bare(outbox, rows, processes)

        turns = [whose for whose, _ in kept.missing([OURS, *choices, BARE], rounds)]
        announce(sum(expected_s(rows, is_debezium=whose in choices) for whose in turns), len(turns))
        for whose in (OURS, BARE) if turns else ():
            measured(whose)  # warms the broker up
        for whose in turns:
            with failures.tolerated(whose) as load:
                kept.add(whose, measured(whose), load_before=load)


if __name__ == "__main__":
    typer.run(main)
