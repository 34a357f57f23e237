"""What `publisher run` tells Prometheus: its own transactions, and what Postgres says of all lanes.

Of Postgres a scrape gets the last look, which a thread takes every few seconds (outbox_metrics.py): it waits for nothing, and no
lane waits for it.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram, start_http_server

from db.connection import connect
from db.errors import SettingsError, UnavailableError
from db.settings import Settings
from publisher.outbox_metrics import OutboxMetrics
from publisher.transaction import RecordRefusedError

_log = structlog.get_logger()

# What one look may take: a few statements of at most 5 s.
_LOOK_S = 20.0

REGISTRY = CollectorRegistry()
DELIVERED_EVENTS = Counter(
    "outbox_delivered_events", "Events that this process committed to Kafka.", registry=REGISTRY
)
_TRANSACTIONS = Counter(
    "outbox_transactions",
    "Kafka transactions of this process by outcome: committed, refused (a record; its row is looked for and parked), failed (tried "
    "again; whether it was committed is found out).",
    ["outcome"],
    registry=REGISTRY,
)
_TRANSACTION_SECONDS = Histogram(
    "outbox_transaction_seconds",
    "From a transaction's begin to its commit.",
    buckets=(0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
    registry=REGISTRY,
)
for _outcome in ("committed", "refused", "failed"):
    _TRANSACTIONS.labels(_outcome)  # so that the first one counts as an increase


@contextmanager
def transaction() -> Iterator[None]:
    """Count and time the Kafka transaction inside."""
    begun_at = time.monotonic()
    try:
        yield
    except RecordRefusedError:
        _TRANSACTIONS.labels("refused").inc()
        raise
    except Exception:
        _TRANSACTIONS.labels("failed").inc()
        raise
    _TRANSACTIONS.labels("committed").inc()
    _TRANSACTION_SECONDS.observe(time.monotonic() - begun_at)


@contextmanager
def served(settings: Settings) -> Iterator[None]:
    """Serve the metrics as `[metrics]` says until the block ends. Raises SettingsError where the port is not to be had."""
    if settings.metrics.port == 0:
        yield
        return
    host, port = settings.metrics.host, settings.metrics.port
    try:
        server, thread = start_http_server(port, host, REGISTRY)
    except OSError as error:
        raise SettingsError(
            f"the metrics endpoint cannot listen on {host}:{port}: {error.strerror or error}. Give each process a port of its own with "
            "[metrics] port (OUTBOX_METRICS__PORT), or switch the endpoint off with 0"
        ) from error
    outbox = OutboxMetrics(3 * settings.metrics.refresh_s + _LOOK_S)
    ended = threading.Event()
    looking = threading.Thread(target=_look, args=(settings, outbox, ended), name="metrics", daemon=True)
    REGISTRY.register(outbox)
    looking.start()
    try:
        yield
    finally:
        REGISTRY.unregister(outbox)
        ended.set()
        server.shutdown()
        server.server_close()
        thread.join()
        # A connection that hangs must not hold up the end of the process.
        looking.join(_LOOK_S)


def _look(settings: Settings, outbox: OutboxMetrics, ended: threading.Event) -> None:
    """Look at Postgres again and again; one that is away is shown as such."""
    try:
        _look_until(settings, outbox, ended)
    finally:
        outbox.lost()


def _look_until(settings: Settings, outbox: OutboxMetrics, ended: threading.Event) -> None:
    lost = False
    while not ended.is_set():
        try:
            with connect(settings.postgres, "publisher metrics", autocommit=True) as connection:
                while not ended.is_set():
                    outbox.look(connection)
                    lost = False
                    ended.wait(settings.metrics.refresh_s)
        except (psycopg.Error, UnavailableError) as error:
            outbox.lost()
            if not lost:
                _log.warning("metrics_without_postgres", reason=str(error).strip())
            lost = True
            ended.wait(settings.metrics.refresh_s)
