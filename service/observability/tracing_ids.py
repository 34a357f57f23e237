"""Ids of spans, derived from their objects. Imports OpenTelemetry, so only processes that send spans import it."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import SpanContext, TraceFlags

_SPAN_DIGITS = 16
_given: ContextVar[str | None] = ContextVar("given", default=None)


@contextmanager
def given(trace_id: str) -> Iterator[None]:
    """Give the span that the block starts this trace id, and its first half as span id."""
    token = _given.set(trace_id)
    try:
        yield
    finally:
        _given.reset(token)


def span_context(trace_id: str) -> SpanContext:
    """Return the context of the span that `given` makes."""
    return SpanContext(
        int(trace_id, 16), int(trace_id[:_SPAN_DIGITS], 16), is_remote=True, trace_flags=TraceFlags(1)
    )


class GivenIds(RandomIdGenerator):
    """Generates random ids, except inside `given`."""

    def generate_trace_id(self) -> int:
        """Return the given trace id, else a random one."""
        found = _given.get()
        return super().generate_trace_id() if found is None else int(found, 16)

    def generate_span_id(self) -> int:
        """Return the span id of the given trace, else a random one."""
        found = _given.get()
        return super().generate_span_id() if found is None else int(found[:_SPAN_DIGITS], 16)
