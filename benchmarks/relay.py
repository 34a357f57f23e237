"""Events per second through the publisher, beside a bare librdkafka transactional producer that sends the same bytes.

    python -m benchmarks.relay [--rows 40000] [--rounds 4] [--lanes 4] [--transaction-sessions 1000] [--processes 0]

An outbox is filled with rows of 20 events of 178 bytes. In every round a bare producer sends them in one loop (same topic
layout, key, value, one `outbox-id` header, transactions of as many rows), and the real publisher relays them, once all of
its lanes are held; who goes first alternates, and an unmeasured round warms the broker up. Both are timed from the end of
their first transaction to the end of their last. `cpu_us` are the microseconds of CPU that an event takes in the sending
process, librdkafka's threads included: they say more than rates on a machine that is busy otherwise.
`--processes N`: instead of within this process, N real `publisher run` relay. Run it alone on the machine.
The last line is one JSON object; `ratio` is the median of the rounds' relay to bare ratios.
"""

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.outbox import (
    EVENTS,
    VALUE_BYTES,
    SyntheticOutbox,
    produce_bare,
    synthetic_outbox,
    wait_for_lanes,
)
from benchmarks.world import publisher_process
from db import logs
from db.settings import LogSettings, PublisherSettings
from devstack.stack import Stack
from publisher.relay import Relay

RATE = """
SELECT sum(events) FILTER (WHERE committed_at > began) / extract(epoch FROM max(committed_at) - min(began))
FROM outbox.delivery, (SELECT min(committed_at) AS began FROM outbox.delivery WHERE events > 0) first
WHERE events > 0
"""
DELIVERED = "SELECT coalesce(sum(events), 0) FROM outbox.delivery"
SHARING_S = 20.0


class Measured(NamedTuple):
    """One run. `cpu_us` an event, 0 where it was not this process that worked."""

    rate: float
    cpu_us: float


class Round(NamedTuple):
    """One round of both. `holders`: how many publishers held lanes when the rows were shown."""

    bare: Measured
    relay: Measured
    holders: int

    def ratio(self) -> float:
        """The relay's rate to the bare one's."""
        return self.relay.rate / self.bare.rate


@contextmanager
def relay_here(outbox: SyntheticOutbox) -> Iterator[None]:
    """The relay in a thread of this process."""
    stop = threading.Event()
    failed: list[BaseException] = []

    def run() -> None:
        try:
            Relay(outbox.settings, stop).run()
        except BaseException as error:
            failed.append(error)
            raise

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        if failed:
            raise SystemExit(f"the relay failed: {failed[0]}")


def measure_relay(outbox: SyntheticOutbox, rows: int, processes: int, folder: Path) -> tuple[Measured, int]:
    """Relay the rows; return the rate and how many publishers held lanes."""
    hidden = outbox.hide(rows)
    with ExitStack() as running:
        if processes == 0:
            running.enter_context(relay_here(outbox))
        for number in range(processes):
            running.enter_context(publisher_process(outbox.settings, folder / f"{outbox.topic}-{number}.log"))
        holders = wait_for_lanes(outbox, max(1, processes), SHARING_S)
        began_cpu = time.process_time()
        hidden.show()
        with outbox.connect() as connection:
            while int(str((connection.execute(DELIVERED).fetchone() or (0,))[0])) < rows * EVENTS:
                time.sleep(0.05)
            cpu = time.process_time() - began_cpu
            rate = connection.execute(RATE).fetchone()
    return Measured(
        float(str(rate[0])) if rate else 0.0, 1e6 * cpu / (rows * EVENTS) if not processes else 0.0
    ), holders


def measure_bare(outbox: SyntheticOutbox, rows: int) -> Measured:
    """Send as many sessions with a plain loop."""
    producer = outbox.bare_producer()
    size = outbox.settings.publisher.transaction_sessions
    began, sent, began_cpu = 0.0, 0, time.process_time()
    for first in range(0, rows, size):
        producer.begin_transaction()
        last = min(first + size, rows)
        for n in range(first, last):
            produce_bare(producer, outbox.bare_topic, n)
        producer.commit_transaction()
        if began:
            sent += (last - first) * EVENTS
        else:
            began = time.perf_counter()
    seconds = time.perf_counter() - began
    return Measured(sent / seconds, 1e6 * (time.process_time() - began_cpu) / (rows * EVENTS))


def measure(stack: Stack, options: argparse.Namespace, folder: Path, *, bare_first: bool) -> Round:
    """One round."""
    publisher = PublisherSettings(transaction_sessions=options.transaction_sessions)
    with synthetic_outbox(stack, options.lanes, publisher) as outbox:
        bare = measure_bare(outbox, options.rows) if bare_first else None
        relay, holders = measure_relay(outbox, options.rows, options.processes, folder)
        return Round(bare or measure_bare(outbox, options.rows), relay, holders)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=40_000, help="rows of 20 events (default 40000)")
    parser.add_argument("--rounds", type=int, default=4, help="times both are measured (default 4)")
    parser.add_argument("--lanes", type=int, default=4, help="lanes of the outbox (default 4)")
    parser.add_argument(
        "--transaction-sessions", type=int, default=1_000, help="rows a transaction (default 1000)"
    )
    parser.add_argument(
        "--processes", type=int, default=0, help="real processes to relay with (default 0: within this one)"
    )
    options = parser.parse_args()
    if options.rows < 2 * options.transaction_sessions * options.lanes:
        parser.error(
            "--rows must be at least twice lanes x transaction-sessions, or there is nothing to time"
        )
    logs.configure(LogSettings(level="WARNING"))
    rounds: list[Round] = []
    with (
        tempfile.TemporaryDirectory(prefix="relay-bench-") as directory,
        Stack.from_environment_or_start(Path(directory), fast=True, heap="1g") as stack,
    ):
        for number in range(options.rounds + 1):
            found = measure(stack, options, Path(directory), bare_first=number % 2 == 1)
            name = f"round {number}" if number else "warm-up"
            sys.stderr.write(
                f"{name}: bare {found.bare.rate:,.0f}/s {found.bare.cpu_us:.2f} us, "
                f"relay {found.relay.rate:,.0f}/s {found.relay.cpu_us:.2f} us, ratio {found.ratio():.2f}, "
                f"{found.holders} holders\n"
            )
            if number:
                rounds.append(found)
    result = {
        "benchmark": "relay",
        "rows": options.rows,
        "events_per_row": EVENTS,
        "value_bytes": VALUE_BYTES,
        "lanes": options.lanes,
        "transaction_sessions": options.transaction_sessions,
        "processes": options.processes,
        "holders": [each.holders for each in rounds],
        "bare_events_per_s": round(statistics.median(each.bare.rate for each in rounds)),
        "bare_cpu_us": round(statistics.median(each.bare.cpu_us for each in rounds), 2),
        "relay_events_per_s": round(statistics.median(each.relay.rate for each in rounds)),
        "relay_cpu_us": round(statistics.median(each.relay.cpu_us for each in rounds), 2),
        "ratio": round(statistics.median(each.ratio() for each in rounds), 3),
    }
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
