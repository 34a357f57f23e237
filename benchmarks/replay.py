"""What a replay costs live publishing: latency of live events without one, beside one at full speed, and beside one with a rate.

    python -m benchmarks.replay [--rows 80000] [--seconds 10] [--rounds 2] [--rate 10000]

An outbox with `rows` delivered rows of 20 events of 178 bytes gets a small live batch (10 rows) every 50 ms. Latency is the time
from a batch's COMMIT to a read_committed consumer of each row's last event. The replay writes to the same topic unless the phase
says otherwise. All phases take turns in one run, beside the same publisher. The last line is one JSON object. Run it alone on the
machine, with rows enough that the replay outlasts a phase.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from confluent_kafka import Consumer

from benchmarks.support.outbox import EVENTS, PARTITIONS, ROWS_PER_BATCH, TOPIC_ID, VALUE_BYTES, fill
from devstack.stack import Stack
from devstack.topics import create_topics

LANES = 4
LIVE_ROWS = 10
LIVE_EVERY_S = 0.05
TOPIC, OTHER = "bench.live", "bench.other"
ROWS = """
INSERT INTO outbox.session_output (session_key, batch_id, lane, revision, session_topic_ids, session_partitions, session_starts,
    session_ends, session_started_ms, session_ended_ms, session_events, session_outputs, topics, "values")
SELECT 'live-' || n, %(batch)s, n %% %(lanes)s, 0, ARRAY[%(id)s], ARRAY[0], ARRAY[1::bigint], ARRAY[%(batch)s::bigint * 1000 + n],
       ARRAY[0], ARRAY[1500], ARRAY[102], ARRAY[%(events)s], array_fill(%(topic)s::text, ARRAY[%(events)s]),
       ARRAY(SELECT convert_to(rpad('live/' || %(batch)s || '/' || n || '/' || e || '/', %(bytes)s, 'x'), 'UTF8')
             FROM generate_series(1, %(events)s) e)
FROM generate_series(1, %(rows)s) n
"""
LEDGER = """
INSERT INTO outbox.batch (batch_id, kind, generation, spark_batch, run_id, start_offsets, end_offsets, open_state, transform_fingerprint)
VALUES (%(batch)s, 'stream', 1, %(batch)s, gen_random_uuid(), '{}', '{}', '{}', 'bench')
"""
DELIVERED = "SELECT coalesce(sum(events), 0) FROM outbox.lane"
SENT = "SELECT coalesce(sum(events_sent), 0) FROM outbox.replay"


class Live:
    """Writes live batches and remembers when each was committed."""

    def __init__(self, dsn: str, first: int) -> None:
        self._dsn = dsn
        self._batch = first
        self.committed: dict[int, float] = {}

    def run(self, seconds: float) -> range:
        """Write for a while; return the batches written."""
        first, until = self._batch, time.monotonic() + seconds
        with psycopg.connect(self._dsn) as connection:
            while time.monotonic() < until:
                began = time.monotonic()
                values = {"batch": self._batch, "lanes": LANES, "id": TOPIC_ID, "topic": TOPIC}
                values |= {"events": EVENTS, "bytes": VALUE_BYTES, "rows": LIVE_ROWS}
                connection.execute(ROWS, values)
                connection.execute(LEDGER, values)
                connection.execute("NOTIFY outbox_batch")
                connection.commit()
                self.committed[self._batch] = time.monotonic()
                self._batch += 1
                time.sleep(max(0.0, LIVE_EVERY_S - (time.monotonic() - began)))
        return range(first, self._batch)


class Reader:
    """A read_committed consumer that notes when the last event of each live row arrived."""

    def __init__(self, bootstrap: str) -> None:
        self.arrived: dict[int, list[float]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(bootstrap,))

    def _run(self, bootstrap: str) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "bench-replay",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "latest",
                "fetch.wait.max.ms": 10,
            }
        )
        consumer.subscribe([TOPIC])
        last = b"/%d/" % EVENTS
        while not self._stop.is_set():
            for message in consumer.consume(5_000, timeout=0.005):
                value = message.value() or b""
                if value.startswith(b"live/") and last in value[:40]:
                    batch = int(value.split(b"/", 2)[1])
                    self.arrived.setdefault(batch, []).append(time.monotonic())
        consumer.close()

    def __enter__(self) -> "Reader":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def _environment(dsn: str, bootstrap: str) -> dict[str, str]:
    values = {key: value for key, value in os.environ.items() if not key.startswith("OUTBOX_")}
    values |= {"OUTBOX_POSTGRES__DSN": dsn, "OUTBOX_KAFKA__BOOTSTRAP_SERVERS": bootstrap}
    return values | {"OUTBOX_LOG__LEVEL": "WARNING"}


@contextmanager
def publisher(environment: dict[str, str], log: Path, *arguments: str) -> Iterator[None]:
    """Run a command of the publisher; SIGTERM at the end."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "publisher", *arguments], env=environment, stdout=output, stderr=output
        )
    try:
        yield
        if process.poll() not in (None, 0):
            raise SystemExit(f"`publisher {' '.join(arguments)}` failed:\n{log.read_text('utf-8')[-3000:]}")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def _number(dsn: str, sql: str) -> int:
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute(sql.encode()).fetchone()
    return int(row[0]) if row is not None else 0


def _percentiles(live: Live, reader: Reader, batches: range) -> list[float]:
    return [
        1_000 * (at - live.committed[batch])
        for batch in batches
        for at in sorted(reader.arrived.get(batch, []))[:LIVE_ROWS]
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rows", type=int, default=80_000, help="delivered rows of 20 events (default 80000)"
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="seconds of a phase (default 10)")
    parser.add_argument("--rounds", type=int, default=2, help="times all phases are measured (default 2)")
    parser.add_argument(
        "--rate", type=int, default=10_000, help="events/s of the limited replay (default 10000)"
    )
    options = parser.parse_args()
    history = 1 + (options.rows - 1) // ROWS_PER_BATCH
    start = ("replay", "start", "--to-batch", str(history), "--yes")
    phases: dict[str, tuple[str, ...] | None] = {
        "alone": None,
        "full speed, same topic": start,
        "full speed, another topic": (*start, "--to-topic", OTHER),
        f"{options.rate:,} events/s, same topic": (*start, "--rate", str(options.rate)),
    }
    latencies: dict[str, list[float]] = {phase: [] for phase in phases}
    rates: dict[str, list[float]] = {phase: [] for phase in phases}
    with (
        tempfile.TemporaryDirectory(prefix="replay-bench-") as directory,
        Stack.local(Path(directory) / "stack", heap="1g") as stack,
    ):
        log, bootstrap = Path(directory) / "log", stack.kafka.bootstrap_servers
        create_topics(bootstrap, {TOPIC: (PARTITIONS, {}), OTHER: (PARTITIONS, {})})
        dsn = stack.create_database("outbox")
        fill(dsn, TOPIC, options.rows, LANES)
        environment = _environment(dsn, bootstrap)
        live = Live(dsn, history + 1)
        with publisher(environment, log, "run"), Reader(bootstrap) as reader:
            while _number(dsn, DELIVERED) < options.rows * EVENTS:
                time.sleep(0.2)
            live.run(2.0)
            for _ in range(options.rounds):
                for phase, arguments in phases.items():
                    if arguments is None:
                        batches = live.run(options.seconds)
                    else:
                        before = _number(dsn, SENT)
                        with publisher(environment, log, *arguments):
                            while _number(dsn, SENT) == before:
                                time.sleep(0.05)
                            before, began = _number(dsn, SENT), time.monotonic()
                            batches = live.run(options.seconds)
                            took = time.monotonic() - began
                            rates[phase].append((_number(dsn, SENT) - before) / took)
                    time.sleep(2.0)
                    found = _percentiles(live, reader, batches)
                    latencies[phase] += found
                    sys.stderr.write(
                        f"{phase}: {len(found)} of {len(batches) * LIVE_ROWS} live rows, "
                        f"p50 {statistics.median(found):.0f} ms, p99 {statistics.quantiles(found, n=100)[98]:.0f} ms, "
                        f"replay {statistics.mean(rates[phase] or [0]):,.0f} events/s\n"
                    )
    result = {
        "benchmark": "replay",
        "live_rows_per_s": LIVE_ROWS / LIVE_EVERY_S,
        "phases": {
            phase: {
                "p50_ms": round(statistics.median(found), 1),
                "p99_ms": round(statistics.quantiles(found, n=100)[98], 1),
                "replay_events_per_s": round(statistics.mean(rates[phase] or [0])),
            }
            for phase, found in latencies.items()
        },
    }
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
