"""With `[tracing] propagate` a consumer's trace is the producer's, also where the job died while the session was open."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import Producer
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from devstack.kafka import KafkaServer
from examples.clickstream.events import END, START, encode
from service.settings import Settings
from tests.support.monitoring.collector import Collector, collecting
from tests.support.outbox.audits import failed, run_audit
from tests.support.pipeline.options import Options
from tests.support.pipeline.pipeline import Pipeline
from tests.support.pipeline.transforms import OWN_TRACE
from tests.support.queries import query
from tests.support.watching import DeliveredEvent

AT = datetime(2026, 1, 1, tzinfo=UTC)
W3C = TraceContextTextMapPropagator()


@pytest.fixture
def collector() -> Iterator[Collector]:
    """Where both services send their spans."""
    with collecting() as server:
        yield server


@pytest.fixture
def pipeline(
    database: str, kafka: KafkaServer, topic_prefix: str, tmp_path: Path, collector: Collector
) -> Iterator[Pipeline]:
    """Two outputs of each session take its trace, one has its own."""
    options: Options = {
        "tracing": {"propagate": True, "endpoint": collector.endpoint},
        "transform": {"function": "tests.support.pipeline.transforms:tracing"},
    }
    with Pipeline(database, kafka.bootstrap_servers, topic_prefix, tmp_path, options=options) as made:
        yield made


@pytest.mark.guarantee(53)
@pytest.mark.faults
def test_a_consumers_trace_is_the_producers(pipeline: Pipeline, collector: Collector, tmp_path: Path) -> None:
    state = "vendor=1,other@tenant=x"
    ends = {"a": traced(state), "b": {}, "c": {"traceparent": "nonsense", "tracestate": state}, "d": traced()}
    pipeline.publisher.start()
    pipeline.job.start()
    write(pipeline, START, {key: traced() for key in "abc"})
    pipeline.more_batches(1)
    pipeline.crash()
    pipeline.lose_cache()
    write(pipeline, START, {"d": traced()})
    write(pipeline, END, ends)
    pipeline.job.start()
    wait_for(pipeline, 12)
    assert pipeline.job.terminate() == 0, pipeline.job.tail()
    assert pipeline.rebuilt() == [3]

    # Without the setting nothing is propagated; it may change at any start.
    write(pipeline, START, {"e": traced()})
    write(pipeline, END, {"e": traced()})
    pipeline.job.start(OUTBOX_TRACING__PROPAGATE="false")
    wait_for(pipeline, 15)
    pipeline.stop()
    assert headers(pipeline, "e", b"plain") == {}

    assert {key: headers(pipeline, key, b"plain") for key in ends} == {
        "a": ends["a"],
        "b": {},
        "c": {},
        "d": ends["d"],
    }
    assert {key: headers(pipeline, key, b"other") for key in ends} == {
        key: {"currency": "EUR", **headers(pipeline, key, b"plain")} for key in ends
    }
    assert all(headers(pipeline, key, b"own") == {"traceparent": OWN_TRACE} for key in ends)
    assert span_of(headers(pipeline, "a", b"plain")) == span_of(ends["a"])
    assert span_of(ends["a"]).trace_id != span_of(ends["d"]).trace_id

    # An audit finds nothing altered, and the services' own spans are what they are without the setting.
    assert failed(run_audit(Settings.model_validate(pipeline.options), tmp_path, kafka=True)) == {}
    linked = {link for span in collector.spans if span.service == "publisher" for link in span.links}
    batches = {span.trace_id for span in collector.spans if span.service == "spark-job"}
    assert linked == set(traces_with_outputs(pipeline))
    assert linked <= batches


def wait_for(pipeline: Pipeline, outputs: int) -> None:
    """Return once so many outputs are at their consumer."""
    pipeline.wait_until(
        lambda: len(pipeline.watcher.seen) >= outputs, f"{outputs} outputs", alive=(pipeline.job,)
    )


def traced(state: str | None = None) -> dict[str, str]:
    """What OpenTelemetry puts into the headers of a message within a span."""
    given = {"tracestate": state} if state else {}
    parent = W3C.extract({"traceparent": f"00-{1:032x}-{1:016x}-01", **given}) if state else None
    carrier: dict[str, str] = {}
    with TracerProvider().get_tracer("test").start_as_current_span("produce", context=parent):
        W3C.inject(carrier)
    return carrier


def span_of(carrier: dict[str, str]) -> trace.SpanContext:
    """What OpenTelemetry makes of the headers of a message."""
    return trace.get_current_span(W3C.extract(carrier)).get_span_context()


def write(pipeline: Pipeline, kind: str, headers: dict[str, dict[str, str]]) -> None:
    """An event of each key, with these headers."""
    producer = Producer({"bootstrap.servers": pipeline.bootstrap})
    for key, given in headers.items():
        name, value, _ = encode(key, kind, AT, kind, {})
        producer.produce(pipeline.input, value, name, partition=0, headers=list(given.items()))
    assert producer.flush(60) == 0


def headers(pipeline: Pipeline, key: str, value: bytes) -> dict[str, str]:
    """The headers of one of a session's outputs, as its consumer got it."""
    (found,) = (each for each in pipeline.watcher.seen if (each.key, each.value) == (key.encode(), value))
    return text_of(found)


def text_of(event: DeliveredEvent) -> dict[str, str]:
    """Its own headers; each is there once."""
    assert len(dict(event.own_headers)) == len(event.own_headers)
    return {name: (value or b"").decode() for name, value in event.own_headers}


def traces_with_outputs(pipeline: Pipeline) -> list[str]:
    """The traces of the batches that have outputs."""
    rows = query(
        pipeline.dsn,
        "SELECT md5(i.outbox_uuid || '/' || b.batch_id) FROM outbox.batch b, outbox.identity i"
        " WHERE EXISTS (SELECT FROM outbox.session_output o WHERE o.batch_id = b.batch_id)",
    )
    return [found for (found,) in rows]
