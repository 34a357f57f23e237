"""The counters of `publisher run` for Prometheus. They are updated per transaction, failure or parked row, never per event."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from confluent_kafka import KafkaError, KafkaException
from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector

from publisher.protocol.records import Row
from publisher.protocol.refusals import RecordRefusedError
from publisher.protocol.stop_reasons import HandoverStuckError
from service.errors import FencedError
from service.observability.best_effort import best_effort

REGISTRY = CollectorRegistry()
ProcessCollector(registry=REGISTRY)

_DELIVERED_EVENTS = Counter(
    "outbox_delivered_events", "Events that this process committed to Kafka.", registry=REGISTRY
)
_DELIVERED_SESSIONS = Counter(
    "outbox_delivered_sessions", "Sessions whose events this process committed to Kafka.", registry=REGISTRY
)
_TRANSACTIONS = Counter(
    "outbox_transactions",
    "Kafka transactions of this process by outcome: committed, refused (a record; its row is looked for and parked), failed (tried "
    "again; its outcome is then looked up).",
    ["outcome"],
    registry=REGISTRY,
)
_TRANSACTION_SECONDS = Histogram(
    "outbox_transaction_seconds",
    "From a transaction's begin to its commit.",
    buckets=(0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
    registry=REGISTRY,
)
_LANES_OPENED = Counter(
    "outbox_lanes_opened",
    "Lanes opened by this process: taken (free, or from another process), reopened (after a failure, or for a new producer).",
    ["kind"],
    registry=REGISTRY,
)
_LANE_FAILURES = Counter(
    "outbox_lane_failures",
    "Steps of a lane that failed, by what failed: kafka, postgres, fenced (another process has the lane), handover (another lane of this "
    "process hangs in its turn), stopped (until somebody fixes it), unexpected (a defect).",
    ["kind"],
    registry=REGISTRY,
)
_FENCES = Counter(
    "outbox_fences",
    "Work of this process that another one has: lease (seen in Postgres), producer (seen in Kafka).",
    ["kind"],
    registry=REGISTRY,
)
_LINKS_BROKEN = Counter(
    "outbox_links_broken",
    "Connections to a transaction coordinator that broke under a transaction: the lane takes a new producer epoch.",
    registry=REGISTRY,
)
_ROWS_PARKED = Counter(
    "outbox_rows_parked", "Rows that this process parked, by reason.", ["reason"], registry=REGISTRY
)
_FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)

# The counters exist from the start, so that `increase()` sees their first increment.
for _counter, _values in (
    (_TRANSACTIONS, ("committed", "refused", "failed")),
    (_LANES_OPENED, ("taken", "reopened")),
    (_LANE_FAILURES, ("kafka", "postgres", "fenced", "handover", "stopped", "unexpected")),
    (_FENCES, ("lease", "producer")),
    (_ROWS_PARKED, ("too_large", "invalid", "topic_missing")),
):
    for _value in _values:
        _counter.labels(_value)


@contextmanager
def transaction(rows: Sequence[Row], took_s: Callable[[], float]) -> Iterator[None]:
    """Count the Kafka transaction of the block, which carries `rows`. `took_s` returns its duration after the block."""
    try:
        yield
    except Exception as error:
        _not_delivered("refused" if isinstance(error, RecordRefusedError) else "failed")
        raise
    _delivered(rows, took_s())


@best_effort("metrics.not_delivered")
def _not_delivered(outcome: str) -> None:
    _TRANSACTIONS.labels(outcome).inc()


@best_effort("metrics.delivered")
def _delivered(rows: Sequence[Row], took_s: float) -> None:
    _TRANSACTIONS.labels("committed").inc()
    _TRANSACTION_SECONDS.observe(took_s)
    _DELIVERED_EVENTS.inc(sum([len(row.topics) for row in rows]))
    _DELIVERED_SESSIONS.inc(sum([len(row.session_ends) for row in rows]))


@best_effort("metrics.opened")
def opened(*, again: bool) -> None:
    """Count a lane that was opened; `again`: the same worker had it open before."""
    _LANES_OPENED.labels("reopened" if again else "taken").inc()


@best_effort("metrics.failed")
def failed(error: Exception) -> None:
    """Count a step of a lane that failed with `error`, which does not stop the lane."""
    if isinstance(error, FencedError):
        _FENCES.labels("lease").inc()
        kind = "fenced"
    elif isinstance(error, KafkaException) and error.args[0].code() in _FENCED:
        _FENCES.labels("producer").inc()
        kind = "fenced"
    elif isinstance(error, HandoverStuckError):
        kind = "handover"
    else:
        kind = "kafka" if isinstance(error, KafkaException) else "postgres"
    _LANE_FAILURES.labels(kind).inc()


@best_effort("metrics.stopped")
def stopped(*, unexpected: bool) -> None:
    """Count a failure that stopped a lane; `unexpected`: a defect."""
    _LANE_FAILURES.labels("unexpected" if unexpected else "stopped").inc()


@best_effort("metrics.link_broke")
def link_broke() -> None:
    """Count a broken connection to the transaction coordinator."""
    _LINKS_BROKEN.inc()


@best_effort("metrics.parked")
def parked(reason: str) -> None:
    """Count a parked row."""
    _ROWS_PARKED.labels(reason).inc()
