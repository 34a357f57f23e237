"""`publisher audit --kafka` is content where it should be: whatever an output can have, and while publishing continues."""

import threading
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest

from devstack.databases import PostgresServer
from publisher.audit.readback.topics import Broker, Offsets, Topic
from publisher.audit.scope import Limits
from publisher.kafka.clients import lane_producer
from service.settings import Settings
from tests.support.outbox.audits import copy_of, counted, damage, failed, fill, run_audit
from tests.support.outbox.batches import TOPIC_ID, Outbox, Session, simple
from tests.support.outbox.deliveries import deliver, drained
from tests.support.processes.publishers import RelayThread
from tests.support.queries import query
from tests.support.waiting import wait_until


def abort(settings: Settings, topic: str) -> None:
    """Leave aborted records that look like outputs."""
    producer = lane_producer(settings.kafka, f"test-{uuid4()}", 60_000, None)
    producer.init_transactions(60)
    producer.begin_transaction()
    for n in range(20):
        producer.produce(
            topic, b"aborted", b"k0001", headers=[("outbox-id", f"{TOPIC_ID}/0/100199/{n}".encode())]
        )
    producer.flush(60)
    producer.abort_transaction(60)


@pytest.mark.guarantee(127)
def test_a_clean_outbox_is_clean_with_everything_an_output_can_have_and_while_publishing_continues(
    outbox: Outbox, settings: Settings, tmp_path: Path
) -> None:
    later = outbox.topic
    outbox.batch(
        {
            "tombstone": [Session([None, b"x", None], 10)],
            "several": [Session([b"1", b"2"], 11), Session([], 12), Session([b"3"], 13)],
            "own": [
                Session(
                    [b"a", b"b", b"c"],
                    14,
                    keys=[b"other", None, b""],
                    headers=[
                        [["trace", "id"], ["raw", {"base64": "/w=="}], ["empty", None]],
                        None,
                        [["a", ""], ["a", "2"]],
                    ],
                    partitions=[2, None, 0],
                    timestamps_ms=[None, 1_700_000_000_000, None],
                )
            ],
            "schlüssel 鍵": [Session(["ü".encode()], 15)],
            "refused": [Session([b"bad"], 16, partitions=[99])],
            "nothing": [Session([], 17)],
        }
    )
    abort(settings, later)
    fill(outbox)
    outbox.batch(simple(1, 3), revision=1)
    deliver(settings)
    abort(settings, later)
    lane = outbox.lane_of("refused")
    damage(
        settings,
        f"SELECT outbox.requeue(ARRAY['refused'], ARRAY[1::bigint], ARRAY[{lane}], 2, gen_random_uuid())",
    )
    damage(settings, "UPDATE outbox.session_output SET partitions = NULL WHERE session_key = 'refused'")
    stop = threading.Event()

    def write_on() -> None:
        batch = 100
        while not stop.is_set():
            outbox.batch(simple(batch, 5))
            batch += 1

    writer = threading.Thread(target=write_on)
    with RelayThread(settings):
        writer.start()
        try:
            for _ in range(2):
                report = run_audit(settings, tmp_path, kafka=True)
                assert failed(report) == {}
                assert counted(report, "outputs_found") >= 70
        finally:
            stop.set()
            writer.join()
        wait_until(lambda: drained(outbox.dsn), "everything delivered")
    report = run_audit(settings, tmp_path, kafka=True)
    assert failed(report) == {}
    assert counted(report, "outputs_found") == counted(report, "records") == len(outbox.written)
    assert report.mend == []
    # The parked row was requeued and went out with batch 7.
    report = run_audit(settings, tmp_path, kafka=True, limits=Limits(to_batch=6))
    assert failed(report) == {}


def test_what_is_committed_and_delivered_while_an_audit_begins_is_explained(
    outbox: Outbox, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(outbox)
    ends = Broker.ends

    def deliver_more_first(broker: Broker, topics: list[Topic]) -> Offsets:
        outbox.batch(simple(9, 5))
        wait_until(lambda: drained(outbox.dsn), "what was committed after the scope was frozen")
        return ends(broker, topics)

    with RelayThread(settings):
        wait_until(lambda: drained(outbox.dsn), "everything delivered")
        monkeypatch.setattr(Broker, "ends", deliver_more_first)
        report = run_audit(settings, tmp_path, kafka=True)
    assert failed(report) == {}
    assert counted(report, "outputs_found") == 75


def test_a_part_of_the_outbox_is_audited_alone(
    delivered: tuple[Settings, Outbox], postgres: PostgresServer, tmp_path: Path
) -> None:
    with copy_of(postgres, delivered[0]) as settings:
        (two,), (four,) = query(
            delivered[1].dsn,
            "SELECT created_at FROM outbox.batch WHERE batch_id IN (2, 4) ORDER BY batch_id",
        )
        for limits in (
            Limits(from_batch=3),
            Limits(to_batch=2),
            Limits(2, 3),
            Limits(since=two, until=four),
            Limits(3, until=datetime.now(UTC)),
        ):
            report = run_audit(settings, tmp_path, kafka=True, limits=limits)
            assert failed(report) == {}
            assert counted(report, "outputs_found") == 30
