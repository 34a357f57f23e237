"""The HTTP endpoint of `publisher run`: metrics, health and readiness (service/monitoring/endpoint.py)."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from db.polling import LONGEST_POLL_S, polling
from publisher.monitoring import metrics
from publisher.monitoring.health import ProcessHealth
from publisher.monitoring.outbox_metrics import OutboxMetrics
from publisher.monitoring.readiness import judge
from service.monitoring import endpoint
from service.monitoring.verdict import Verdict
from service.settings import Settings


def ready(settings: Settings, health: ProcessHealth) -> Verdict:
    """Return what `/readyz` says."""
    publisher = settings.publisher
    return judge(
        health.seen(),
        progress_s=settings.metrics.progress_s,
        poll_s=publisher.poll_ms / 1000,
        lease_s=publisher.lease_s,
    )


@contextmanager
def served(settings: Settings, health: ProcessHealth) -> Iterator[None]:
    """Serve as `[metrics]` says until the block ends. Raises SettingsError where the port is not to be had."""
    if settings.metrics.port == 0:
        yield
        return
    outbox = OutboxMetrics(3 * settings.metrics.refresh_s + LONGEST_POLL_S)
    process = ProcessMetrics(settings, health)
    pages = endpoint.pages(
        [metrics.REGISTRY, outbox, process], health.loops.verdict, lambda: ready(settings, health)
    )
    with ExitStack() as cleanup:
        cleanup.enter_context(
            endpoint.served(
                settings.metrics.host,
                settings.metrics.port,
                pages,
                "[metrics] port (OUTBOX_METRICS__PORT)",
            )
        )
        cleanup.enter_context(polling(settings, "publisher metrics", outbox.look, outbox.lost))
        yield


class ProcessMetrics(Collector):
    """How this process is, as metrics."""

    def __init__(self, settings: Settings, health: ProcessHealth) -> None:
        self._settings = settings
        self._health = health

    def describe(self) -> list[Metric]:
        """Name the metrics without values."""
        return list(_families().values())

    def collect(self) -> list[Metric]:
        """Return the metrics as of now."""
        found = _families()
        seen, lanes = self._health.seen(), self._health.lanes()
        producers = [lane.producer for lane in lanes]
        found["outbox_ready"].add_metric([], int(ready(self._settings, self._health).holds))
        found["outbox_heartbeat_age_seconds"].add_metric([], seen.beat_s_ago)
        found["outbox_lanes_held"].add_metric([], len(lanes))
        queued = sum([len(producer) for producer in producers if producer is not None])
        found["outbox_producer_queue_messages"].add_metric([], queued)
        for lane in lanes:
            if lane.transaction_rows is not None:
                labels = [str(lane.epoch), str(lane.lane)]
                found["outbox_transaction_rows_limit"].add_metric(labels, lane.transaction_rows)
        return list(found.values())


def _families() -> dict[str, GaugeMetricFamily]:
    none: list[str] = []
    texts = {
        "outbox_ready": ("Whether /readyz says 200.", none),
        "outbox_heartbeat_age_seconds": (
            "Seconds since this process last told Postgres that it lives.",
            none,
        ),
        "outbox_lanes_held": ("Lanes that this process works on.", none),
        "outbox_producer_queue_messages": (
            "Messages in librdkafka that Kafka has not acknowledged, over all lanes of this process.",
            none,
        ),
        "outbox_transaction_rows_limit": (
            "Rows that the lane's next transaction may carry: fewer than [publisher] transaction_sessions after failures.",
            ["epoch", "lane"],
        ),
    }
    return {name: GaugeMetricFamily(name, text, labels=labels) for name, (text, labels) in texts.items()}
