"""Spans for OpenTelemetry: one for each committed batch, one for each Kafka transaction, linked to the batches that it carries.

The ids of a batch's span follow from the outbox and the batch's number alone, so publisher and SQL can name the span although nobody stores
it: the trace id is `md5(outbox_uuid || '/' || batch_id)`, the span id its first half. Without `[tracing] endpoint` nothing is imported or
computed. A thread sends the spans in groups; an absent collector loses spans, and delays no work.
"""

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import md5
from typing import TYPE_CHECKING, Any
from uuid import UUID

import structlog

from service.errors import SettingsError
from service.observability.best_effort import best_effort
from service.settings import TracingSettings

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter

_log = structlog.get_logger()

_provider: "TracerProvider | None" = None
_outbox: UUID | None = None
_MOST_LINKS = 128


def trace_id(outbox: UUID, batch_id: int) -> str:
    """Return the id of the trace that a batch's span is in, 32 hexadecimal digits."""
    return md5(f"{outbox}/{batch_id}".encode(), usedforsecurity=False).hexdigest()


class _Complaints(logging.Handler):
    """Logs OpenTelemetry's messages about an unavailable collector, each text once."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._said: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Log it if it is new."""
        if record.msg not in self._said:
            self._said.add(str(record.msg))
            _log.warning("spans_not_sent", because=record.getMessage()[:300])


@contextmanager
def sending(
    settings: TracingSettings, service: str, exporter: "SpanExporter | None" = None
) -> Iterator[None]:
    """Send spans within the block, and the rest at its end, if the settings name an endpoint. `exporter` replaces that endpoint.

    Raises SettingsError if the extra `otel` is missing.
    """
    global _provider
    if settings.endpoint is None:
        yield
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        from service.observability.tracing_ids import GivenIds
    except ImportError as error:
        raise SettingsError(
            "[tracing] endpoint (OUTBOX_TRACING__ENDPOINT) needs OpenTelemetry: pip install 'spark-outbox[otel]'"
        ) from error
    complaints = logging.getLogger("opentelemetry")
    complaints.handlers, complaints.propagate = [_Complaints()], False
    provider = TracerProvider(resource=Resource({"service.name": service}), id_generator=GivenIds())
    provider.add_span_processor(
        BatchSpanProcessor(exporter or OTLPSpanExporter(settings.endpoint, timeout=settings.timeout_s))
    )
    _provider = provider
    try:
        yield
    finally:
        _provider = None
        with best_effort("tracing.end"):
            provider.shutdown()


def about(outbox: UUID) -> None:
    """Name the outbox of this process' spans. Before this call, no span is made."""
    global _outbox
    _outbox = outbox


def is_on() -> bool:
    """Return whether spans are sent; otherwise their data need not be prepared."""
    return _provider is not None


@best_effort("tracing.batch")
def batch(batch_id: int, took_s: float, attributes: Mapping[str, Any]) -> None:
    """Make the span of a batch that was committed just now, in the last `took_s` seconds."""
    if _provider is None or _outbox is None:
        return
    from service.observability.tracing_ids import given

    now_ns = time.time_ns()
    with given(trace_id(_outbox, batch_id)):
        span = _provider.get_tracer("spark-outbox").start_span(
            "outbox batch",
            context=_no_parent(),
            start_time=now_ns - int(took_s * 1e9),
            attributes={"outbox.batch": batch_id, **attributes},
        )
    span.end(now_ns)


@best_effort("tracing.transaction")
def transaction(batches: Iterable[int], took_s: float, attributes: Mapping[str, Any]) -> None:
    """Make the span of a Kafka transaction that was committed just now, with rows of these batches."""
    if _provider is None or _outbox is None:
        return
    from opentelemetry.trace import Link

    from service.observability.tracing_ids import span_context

    # A transaction of a lane that is far behind may have rows of more batches; only the last of these are linked.
    linked = sorted(set(batches))[-_MOST_LINKS:]
    now_ns = time.time_ns()
    span = _provider.get_tracer("spark-outbox").start_span(
        "outbox delivery",
        context=_no_parent(),
        start_time=now_ns - int(took_s * 1e9),
        links=[Link(span_context(trace_id(_outbox, each))) for each in linked],
        attributes=dict(attributes),
    )
    span.end(now_ns)


def _no_parent() -> Any:
    from opentelemetry.context import Context

    return Context()
