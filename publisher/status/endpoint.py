"""The HTTP endpoint of `publisher run`: metrics, health and readiness (service/observability/endpoint.py)."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from db.polled_gauges import max_age_s, polling
from publisher.monitoring import metrics
from publisher.monitoring.health import ProcessHealth
from publisher.monitoring.readiness import judge
from publisher.status.outbox_metrics import PublisherOutboxMetrics
from service.observability import endpoint
from service.observability.gauges import Gauges, LiveGauges, Sample
from service.observability.verdict import HealthVerdict
from service.settings import Settings


def ready(settings: Settings, health: ProcessHealth) -> HealthVerdict:
    """Return the answer of `/readyz`."""
    publisher = settings.publisher
    return judge(
        health.snapshot(),
        progress_s=settings.metrics.progress_s,
        poll_s=publisher.poll_ms / 1000,
        lease_s=publisher.lease_s,
    )


@contextmanager
def served(settings: Settings, health: ProcessHealth) -> Iterator[None]:
    """Serve the endpoint according to `[metrics]` until the block ends. Raises SettingsError if the port cannot be opened."""
    if settings.metrics.port == 0:
        yield
        return
    outbox = PublisherOutboxMetrics(max_age_s(settings.metrics))
    process = process_metrics(settings, health)
    pages = endpoint.pages(
        [metrics.REGISTRY, outbox, process], health.verdict, lambda: ready(settings, health)
    )
    with (
        endpoint.served(
            settings.metrics.host, settings.metrics.port, pages, "[metrics] port (OUTBOX_METRICS__PORT)"
        ),
        polling(settings, "publisher metrics", outbox.poll, outbox.lost),
    ):
        yield


def process_metrics(settings: Settings, health: ProcessHealth) -> LiveGauges:
    """Return the state of this process as metrics."""
    return LiveGauges(_GAUGES, partial(_samples, settings, health))


def _samples(settings: Settings, health: ProcessHealth) -> Iterator[Sample]:
    seen, lanes = health.snapshot(), health.lanes()
    producers = [lane.producer for lane in lanes]
    yield "outbox_ready", (), int(ready(settings, health).holds)
    yield "outbox_heartbeat_age_seconds", (), seen.heartbeat_s_ago
    yield "outbox_lanes_held", (), len(lanes)
    queued = sum([len(producer) for producer in producers if producer is not None])
    yield "outbox_producer_queue_messages", (), queued
    if settings.retention.keep_s is not None:
        yield "outbox_retention_keep_seconds", (), settings.retention.keep_s
    for lane in lanes:
        if lane.transaction_rows is not None:
            yield (
                "outbox_transaction_rows_limit",
                (str(lane.epoch), str(lane.lane)),
                lane.transaction_rows,
            )


_GAUGES: Gauges = {
    "outbox_ready": ("Whether /readyz says 200.", ()),
    "outbox_heartbeat_age_seconds": ("Seconds since this process last told Postgres that it lives.", ()),
    "outbox_lanes_held": ("Lanes that this process works on.", ()),
    "outbox_producer_queue_messages": (
        "Messages in librdkafka that Kafka has not acknowledged, over all lanes of this process.",
        (),
    ),
    "outbox_retention_keep_seconds": ("[retention] keep_s; left out where it is not set.", ()),
    "outbox_transaction_rows_limit": (
        "Rows that the lane's next transaction may carry: fewer than [publisher] transaction_sessions after failures.",
        ("epoch", "lane"),
    ),
}
