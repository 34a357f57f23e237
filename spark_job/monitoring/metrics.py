"""The Prometheus metrics of `spark-job run`. Batches and attempts update them, single events never do."""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from service.observability.best_effort import best_effort

REGISTRY = CollectorRegistry()
ProcessCollector(registry=REGISTRY)

LETTER_REASONS = ("malformed", "no_start", "restarted", "timed_out", "too_large", "transform_failed")

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


def _counter(name: str, text: str, label: str | None = None) -> Counter:
    return Counter(name, text, [] if label is None else [label], registry=REGISTRY)


_BATCHES = _counter("outbox_batches", "Spark batches that this process committed to the outbox.")
_INPUT_EVENTS = _counter("outbox_input_events", "Input events in batches that this process committed.")
_SESSIONS = _counter("outbox_sessions", "Sessions in batches that this process committed.")
_OUTPUT_EVENTS = _counter("outbox_output_events", "Output events in batches that this process committed.")
_OUTPUT_BYTES = _counter(
    "outbox_output_bytes", "Encoded bytes of output events in batches that this process committed."
)
_DEAD_LETTERS = _counter(
    "outbox_dead_letters", "New dead letters in batches that this process committed.", "reason"
)
_UNUSABLE_SCHEMA = _counter(
    "outbox_unusable_schema_events",
    "Input events that are malformed because of their schema (unknown to the registry, of another kind, or unusable), in batches that this "
    "process committed.",
)
_RESOLVED = _counter("outbox_dead_letters_resolved", "Dead letters resolved by outputs of committed batches.")
_DUPLICATES = _counter("outbox_duplicate_events", "Input events dropped as duplicates.")
_REBUILT = _counter("outbox_rebuilt_events", "Input events read again from Kafka to rebuild open sessions.")
_PHASE_SECONDS = Histogram(
    "outbox_batch_phase_seconds",
    "Phases of a batch: action (Spark reads, assembles and transforms), open, assemble and transform (parts of it, added up over Spark's "
    "tasks; open: taking and keeping the open sessions), prepare (the rows on the driver), commit (Postgres' transaction).",
    ["phase"],
    buckets=_SECONDS,
    registry=REGISTRY,
)
_SPARK_SECONDS = Histogram(
    "outbox_spark_phase_seconds",
    "Phases of a batch as Spark reports them: latestOffset, queryPlanning, walCommit, addBatch, commitOffsets, triggerExecution, …",
    ["phase"],
    buckets=_SECONDS,
    registry=REGISTRY,
)
_WAITED = _counter(
    "outbox_batch_wait_seconds",
    "Seconds the job idled between batches because of [job] latency, without a backlog.",
)
_DUTY = Gauge(
    "outbox_duty_cycle",
    "Fraction of the newest batch's cycle spent computing it.",
    registry=REGISTRY,
)
_RESTARTS = _counter(
    "outbox_restarts", "Attempts of this process that failed and were followed by another, by error.", "cause"
)
_FENCES = _counter(
    "outbox_fences",
    "Times another process took over this process's work; writer: another run owns the outbox.",
    "kind",
)
_TAKEOVERS = _counter(
    "outbox_takeovers", "Times this process took the outbox over from a former owner, dead or fenced."
)

# Create the label sets now, so that increase() counts the first event.
for _metric, _values in (
    (_DEAD_LETTERS, LETTER_REASONS),
    (_PHASE_SECONDS, ("action", "open", "assemble", "transform", "prepare", "commit")),
    (_FENCES, ("writer",)),
):
    for _value in _values:
        _metric.labels(_value)


@best_effort("metrics.action")
def action(seconds: float) -> None:
    """Record the duration of a committed batch's Spark action."""
    _PHASE_SECONDS.labels("action").observe(seconds)


@best_effort("metrics.paced")
def paced(computing_s: float, *, waited_s: float, cycle_s: float) -> None:
    """Record a batch's compute time, the pause after it, and the whole cycle."""
    _WAITED.inc(waited_s)
    _DUTY.set(computing_s / max(cycle_s, 1e-9))


@best_effort("metrics.committed")
def committed(
    *,
    events: int,
    sessions: int,
    output_events: int,
    output_bytes: int,
    dead_letters: Mapping[str, int],
    resolved: int,
    duplicates: int,
    unusable_schema: int,
    rebuilt: int,
    seconds: Mapping[str, float],
) -> None:
    """Count a committed batch. `dead_letters`: the new ones by reason; `seconds`: by phase."""
    _BATCHES.inc()
    _INPUT_EVENTS.inc(events)
    _SESSIONS.inc(sessions)
    _OUTPUT_EVENTS.inc(output_events)
    _OUTPUT_BYTES.inc(output_bytes)
    for reason, count in dead_letters.items():
        _DEAD_LETTERS.labels(reason).inc(count)
    _RESOLVED.inc(resolved)
    _DUPLICATES.inc(duplicates)
    _UNUSABLE_SCHEMA.inc(unusable_schema)
    _REBUILT.inc(rebuilt)
    for phase, took_s in seconds.items():
        _PHASE_SECONDS.labels(phase).observe(took_s)


@best_effort("metrics.spark_batch")
def spark_batch(duration_ms: Mapping[str, int]) -> None:
    """Record the phase durations of a batch that Spark has finished."""
    for phase, took_ms in duration_ms.items():
        _SPARK_SECONDS.labels(phase).observe(took_ms / 1000)


@best_effort("metrics.restarted")
def restarted(error: Exception) -> None:
    """Count a failed attempt that is followed by another."""
    _RESTARTS.labels(type(error).__name__).inc()


@best_effort("metrics.fenced")
def fenced() -> None:
    """Count that another run has taken over the outbox."""
    _FENCES.labels("writer").inc()


@best_effort("metrics.took_over")
def took_over() -> None:
    """Count a takeover."""
    _TAKEOVERS.inc()
