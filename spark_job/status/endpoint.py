"""The HTTP endpoint of `spark-job run`: metrics, health and readiness (service/observability/endpoint.py), over all its attempts."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from db.polled_gauges import max_age_s, polling
from service.observability import endpoint
from service.observability.gauges import Gauges, LiveGauges, Sample
from service.observability.verdict import HealthVerdict
from service.settings import Settings
from spark_job.monitoring import metrics
from spark_job.monitoring.health import JobHealth
from spark_job.monitoring.readiness import judge
from spark_job.status.input_lag import InputLag
from spark_job.status.outbox_metrics import JobOutboxMetrics


def ready(settings: Settings, health: JobHealth) -> HealthVerdict:
    """Return the answer of `/readyz`."""
    return judge(
        health.snapshot(),
        progress_s=settings.metrics.progress_s,
        owner_timeout_s=settings.job.owner_timeout_s,
    )


@contextmanager
def served(settings: Settings, health: JobHealth) -> Iterator[None]:
    """Serve as `[metrics]` configures until the block ends. Raises SettingsError if the port cannot be opened."""
    port = settings.metrics.port_of_job()
    if port == 0:
        yield
        return
    outbox = JobOutboxMetrics(max_age_s(settings.metrics), InputLag(settings.kafka).read)
    process = process_metrics(settings, health)
    pages = endpoint.pages(
        [metrics.REGISTRY, outbox, process], health.loops.verdict, lambda: ready(settings, health)
    )
    with (
        endpoint.served(
            settings.metrics.host,
            port,
            pages,
            "[metrics] port (OUTBOX_METRICS__PORT), or the job with job_port (OUTBOX_METRICS__JOB_PORT)",
        ),
        polling(settings, "spark-job metrics", outbox.poll, outbox.lost),
    ):
        yield


def process_metrics(settings: Settings, health: JobHealth) -> LiveGauges:
    """Return this process' state as metrics."""
    return LiveGauges(_GAUGES, partial(_samples, settings, health))


def _samples(settings: Settings, health: JobHealth) -> Iterator[Sample]:
    seen = health.snapshot()
    yield "outbox_ready", (), int(ready(settings, health).holds)
    yield "outbox_heartbeat_age_seconds", (), seen.heartbeat_s_ago
    yield "outbox_held_back", (), int(seen.held_back is not None)
    yield "outbox_attempt", (), seen.attempt
    yield "outbox_max_open_bytes", (), settings.session.max_open_bytes
    if seen.run:
        yield "outbox_run_info", [str(seen.run[label]) for label in _RUN], 1


_RUN = ("restored", "generation", "reason", "policy", "revision")
_GAUGES: Gauges = {
    "outbox_ready": ("Whether /readyz answers 200.", ()),
    "outbox_heartbeat_age_seconds": ("Seconds since this process last wrote its heartbeat to Postgres.", ()),
    "outbox_held_back": ("1 while backpressure holds the job back.", ()),
    "outbox_attempt": ("Number of this attempt in its process: 1 for the first.", ()),
    "outbox_max_open_bytes": ("[session] max_open_bytes: the limit of outbox_largest_partition_bytes.", ()),
    "outbox_run_info": (
        "1, with how the last start resumed: restored, generation, why that was opened, its policy and revision.",
        _RUN,
    ),
}
