"""A publisher tells a collector of each delivery, linked to the traces that SQL names; one that is away holds nothing up."""

from pathlib import Path

from service.settings import Settings
from tests.support.monitoring.collector import collecting
from tests.support.outbox.batches import Outbox, simple
from tests.support.outbox.deliveries import drained
from tests.support.processes.publishers import publisher_service
from tests.support.queries import query
from tests.support.waiting import wait_until


def test_a_delivery_names_its_row_and_is_linked_to_its_batches(
    outbox: Outbox, settings: Settings, tmp_path: Path
) -> None:
    outbox.batch(simple(1, keys=6))
    outbox.batch(simple(2, keys=6))
    with collecting() as collector:
        publisher = publisher_service(
            settings, tmp_path / "publisher.log", {"OUTBOX_TRACING__ENDPOINT": collector.endpoint}
        )
        with publisher:
            wait_until(lambda: drained(outbox.dsn), publisher.tail)
            assert publisher.terminate() == 0, publisher.tail()
        spans = list(collector.spans)
    assert {(span.service, span.name) for span in spans} == {("publisher", "outbox delivery")}
    rows = query(
        outbox.dsn, "SELECT epoch, lane, seq, sessions, events FROM outbox.delivery WHERE sessions > 0"
    )
    names = ("epoch", "lane", "seq", "sessions", "outputs")
    told = {tuple(span.attributes[f"outbox.{name}"] for name in names) for span in spans}
    assert told == set(rows)
    assert len(spans) == len(rows)
    traces = query(
        outbox.dsn, "SELECT md5(i.outbox_uuid || '/' || b.batch_id) FROM outbox.batch b, outbox.identity i"
    )
    assert {link for span in spans for link in span.links} == {trace for (trace,) in traces}


def test_a_collector_that_is_away_holds_no_delivery_up_and_is_told_of(
    outbox: Outbox, settings: Settings, tmp_path: Path
) -> None:
    outbox.batch(simple(1, keys=6))
    away = {"OUTBOX_TRACING__ENDPOINT": "http://127.0.0.1:1/v1/traces", "OUTBOX_TRACING__TIMEOUT_S": "0.5"}
    publisher = publisher_service(settings, tmp_path / "publisher.log", away)
    with publisher:
        wait_until(lambda: drained(outbox.dsn), publisher.tail)
        assert publisher.terminate() == 0, publisher.tail()
    assert "spans_not_sent" in publisher.log()
    assert "Traceback" not in publisher.log()
