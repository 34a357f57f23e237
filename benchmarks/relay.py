"""Events per second through the publisher, beside a bare librdkafka transactional producer that sends the same bytes.

    python -m benchmarks.relay [--rows 40000] [--rounds 3] [--lanes 4] [--transaction-sessions 1000]

An outbox is filled with rows of 20 events of 178 bytes. In every round a bare producer sends them in one loop (same topic
layout, key, value, one `outbox-id` header, transactions of as many rows), then the real publisher relays them. Both are
timed from the end of their first transaction to the end of their last. Run it alone on the machine.
The last line is one JSON object; `ratio` is the median of the rounds' relay to bare ratios.
"""

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path

import psycopg
from pydantic import SecretStr

from db import logs
from db.migrate import upgrade
from db.settings import KafkaSettings, LogSettings, PostgresSettings, PublisherSettings, Settings
from devstack.stack import Stack
from devstack.topics import create_topics
from publisher.clients import lane_producer
from publisher.relay import Relay

EVENTS = 20
VALUE_BYTES = 178
TOPIC_ID = "A" * 22
PARTITIONS = 4
ROWS_PER_BATCH = 4_000

FILL = """
INSERT INTO outbox.session_output (session_key, batch_id, lane, revision, session_topic_ids, session_partitions, session_starts,
    session_ends, session_started_ms, session_ended_ms, session_events, session_outputs, topics, "values")
SELECT 'session-' || lpad(n::text, 10, '0'), 1 + n / %(batch)s, n %% %(lanes)s, 0, ARRAY[%(id)s], ARRAY[0], ARRAY[n::bigint * 102],
       ARRAY[n::bigint * 102 + 101], ARRAY[0], ARRAY[1500], ARRAY[102], ARRAY[%(events)s], array_fill(%(topic)s::text, ARRAY[%(events)s]),
       ARRAY(SELECT convert_to(left(repeat(md5(n || '/' || e), 6), %(bytes)s), 'UTF8') FROM generate_series(1, %(events)s) e)
FROM generate_series(0, %(rows)s - 1) n
"""
LEDGER = """
INSERT INTO outbox.batch (batch_id, kind, generation, spark_batch, run_id, start_offsets, end_offsets, done_offsets, safe_offsets,
    content_hash, transform_fingerprint)
SELECT b, 'stream', 1, b, gen_random_uuid(), '{}', '{}', '{}', '{}', decode(repeat('00', 32), 'hex'), 'bench'
FROM generate_series(1, 1 + (%(rows)s - 1) / %(batch)s) b
"""
GENERATION = """
INSERT INTO outbox.generation (generation, directory_token, start_offsets, high_water, topics, reason, policy, assembly,
    assembly_fingerprint, run_id)
VALUES (1, 'bench', '{}', '{}', '{}', 'first', 'skip', '{}', 'bench', gen_random_uuid())
"""
RATE = """
SELECT sum(events) FILTER (WHERE committed_at > began) / extract(epoch FROM max(committed_at) - min(began))
FROM outbox.delivery, (SELECT min(committed_at) AS began FROM outbox.delivery) first
"""


def fill(dsn: str, topic: str, rows: int, lanes: int) -> None:
    """Fill a fresh outbox."""
    values = {
        "rows": rows,
        "lanes": lanes,
        "topic": topic,
        "batch": ROWS_PER_BATCH,
        "events": EVENTS,
        "bytes": VALUE_BYTES,
        "id": TOPIC_ID,
    }
    upgrade(dsn)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(GENERATION)
        connection.execute(
            "INSERT INTO outbox.lane_epoch (epoch, from_batch, lanes) VALUES (1, 1, %s)", (lanes,)
        )
        connection.execute(FILL, values)
        connection.execute(LEDGER, values)
        connection.execute("VACUUM ANALYZE outbox.session_output")


def relay(settings: Settings, events: int) -> float:
    """Relay everything and return events/s."""
    stop = threading.Event()
    failed: list[BaseException] = []

    def run() -> None:
        try:
            Relay(settings, stop).run()
        except BaseException as error:
            failed.append(error)
            raise

    thread = threading.Thread(target=run)
    thread.start()
    with psycopg.connect(settings.postgres.dsn.get_secret_value(), autocommit=True) as connection:
        while not failed:
            row = connection.execute("SELECT coalesce(sum(events), 0) FROM outbox.delivery").fetchone()
            if row is not None and row[0] >= events:
                break
            time.sleep(0.05)
        stop.set()
        thread.join()
        if failed:
            raise SystemExit(f"the relay failed: {failed[0]}")
        rate = connection.execute(RATE).fetchone()
    return float(rate[0]) if rate is not None else 0.0


def bare(settings: Settings, topic: str, rows: int) -> float:
    """Send the same events with a plain loop and return events/s."""
    producer = lane_producer(settings.kafka, f"bare-{uuid.uuid4()}", 60_000, None)
    producer.init_transactions(30)
    produce = producer.produce
    values = [bytes(f"{n:0{VALUE_BYTES}d}", "ascii") for n in range(EVENTS)]
    size = settings.publisher.transaction_sessions
    began, sent = 0.0, 0
    for first in range(0, rows, size):
        producer.begin_transaction()
        last = min(first + size, rows)
        for n in range(first, last):
            key = b"session-%010d" % n
            end = n * 102 + 101
            for index, value in enumerate(values):
                produce(
                    topic,
                    value,
                    key,
                    -1,
                    None,
                    None,
                    0,
                    [("outbox-id", b"%s/0/%d/%d" % (b"A" * 22, end, index))],
                )
        producer.commit_transaction()
        if began:
            sent += (last - first) * EVENTS
        else:
            began = time.perf_counter()
    return sent / (time.perf_counter() - began)


def measure(stack: Stack, rows: int, lanes: int, transaction_sessions: int) -> tuple[float, float]:
    """One round: (bare, relay) in events/s."""
    name = f"bench_{uuid.uuid4().hex[:12]}"
    bootstrap = stack.kafka.bootstrap_servers
    create_topics(bootstrap, {f"{name}-bare": (PARTITIONS, {}), f"{name}-relay": (PARTITIONS, {})})
    dsn = stack.create_database(name)
    # Built without the environment, which would win and may name the servers of the run.
    settings = Settings.model_construct(
        postgres=PostgresSettings(dsn=SecretStr(dsn)),
        kafka=KafkaSettings(bootstrap_servers=bootstrap),
        publisher=PublisherSettings(transaction_sessions=transaction_sessions),
    )
    try:
        fill(dsn, f"{name}-relay", rows, lanes)
        return bare(settings, f"{name}-bare", rows), relay(settings, rows * EVENTS)
    finally:
        stack.postgres.drop_database(name)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=40_000, help="rows of 20 events (default 40000)")
    parser.add_argument("--rounds", type=int, default=3, help="times both are measured (default 3)")
    parser.add_argument("--lanes", type=int, default=4, help="lanes of the outbox (default 4)")
    parser.add_argument(
        "--transaction-sessions", type=int, default=1_000, help="rows a transaction (default 1000)"
    )
    options = parser.parse_args()
    if options.rows < 2 * options.transaction_sessions * options.lanes:
        parser.error(
            "--rows must be at least twice lanes x transaction-sessions, or there is nothing to time"
        )
    logs.configure(LogSettings(level="WARNING"))
    rounds: list[tuple[float, float]] = []
    with (
        tempfile.TemporaryDirectory(prefix="relay-bench-") as directory,
        Stack.from_environment_or_start(Path(directory), fast=True, heap="1g") as stack,
    ):
        for number in range(options.rounds):
            rounds.append(measure(stack, options.rows, options.lanes, options.transaction_sessions))
            without, through = rounds[-1]
            sys.stderr.write(
                f"round {number + 1}: bare {without:,.0f}/s, relay {through:,.0f}/s, ratio {through / without:.2f}\n"
            )
    result = {
        "benchmark": "relay",
        "rows": options.rows,
        "events_per_row": EVENTS,
        "value_bytes": VALUE_BYTES,
        "lanes": options.lanes,
        "transaction_sessions": options.transaction_sessions,
        "bare_events_per_s": round(statistics.median(without for without, _ in rounds)),
        "relay_events_per_s": round(statistics.median(through for _, through in rounds)),
        "ratio": round(statistics.median(through / without for without, through in rounds), 3),
    }
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
