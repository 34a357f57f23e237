"""Spans lead from a delivery to its batches and to SQL; where nobody asks for them, there are none and nothing of them is loaded."""

import subprocess
import sys
from uuid import UUID

from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from service.observability import tracing
from service.settings import TracingSettings
from tests.support.paths import ROOT

OUTBOX = UUID(int=7)
ON = TracingSettings(endpoint="http://127.0.0.1:1/v1/traces")


def test_a_delivery_is_linked_to_the_batches_that_it_carries() -> None:
    collected = InMemorySpanExporter()
    with tracing.sending(ON, "test", collected):
        tracing.about(OUTBOX)
        tracing.batch(12, 0.25, {"outbox.sessions": 3})
        tracing.batch(13, 0.25, {})
        tracing.transaction([12, 13, 13], 0.01, {"outbox.lane": 1})
        tracing.transaction([], 0.01, {})
    first, second, delivery, empty = collected.get_finished_spans()
    contexts = [span.context for span in (first, second)]
    assert [f"{found.trace_id:032x}" for found in contexts if found] == [
        tracing.trace_id(OUTBOX, 12),
        tracing.trace_id(OUTBOX, 13),
    ]
    assert [(link.context.trace_id, link.context.span_id) for link in delivery.links] == [
        (found.trace_id, found.span_id) for found in contexts if found
    ]
    assert first.attributes == {"outbox.batch": 12, "outbox.sessions": 3}
    assert first.start_time is not None
    assert first.end_time is not None
    assert first.end_time - first.start_time == 250_000_000
    assert delivery.context is not None
    assert delivery.context.trace_id not in [found.trace_id for found in contexts if found]
    assert list(empty.links) == []
    assert first.resource.attributes["service.name"] == "test"


def test_the_trace_of_a_batch_is_what_sql_computes() -> None:
    # SELECT md5('00000000-0000-0000-0000-000000000007' || '/' || 12)
    assert tracing.trace_id(OUTBOX, 12) == "b8b77851eaa8d17571ddaee7fa290727"


def test_a_collector_that_is_away_costs_spans_and_no_work() -> None:
    with tracing.sending(TracingSettings(endpoint=ON.endpoint, timeout_s=0.1), "test"):
        tracing.about(OUTBOX)
        tracing.batch(12, 0.25, {})


def test_nothing_of_it_is_loaded_where_it_is_off() -> None:
    program = (
        "import sys; from service.observability import tracing; from service.settings import TracingSettings\n"
        "with tracing.sending(TracingSettings(), 'test'):\n"
        "    assert not tracing.is_on()\n"
        "    tracing.batch(1, 0.1, {})\n"
        "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode == 0
