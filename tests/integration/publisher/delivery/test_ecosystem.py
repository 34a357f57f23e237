"""Records look to Java clients, tracing and CloudEvents as they expect them."""

import uuid
from collections import Counter
from pathlib import Path

import pytest

from devstack.databases import PostgresServer
from devstack.kafka import KafkaServer
from devstack.topics import create_topics
from tests.support.outbox.audits import failed, run_audit
from tests.support.outbox.batches import TOPIC_ID, Outbox, Session
from tests.support.outbox.deliveries import assert_exactly_once, deliver, drained
from tests.support.outbox.replays import replayed
from tests.support.processes.publishers import RelayThread, settings_for
from tests.support.queries import query
from tests.support.waiting import wait_until
from tests.support.watching import Watcher

# Of 12 partitions, by kafka-clients 4.3.1: BuiltInPartitioner.partitionForKey(key.getBytes(UTF_8), 12).
JAVA_PARTITIONS = {
    "": 9,
    "a": 4,
    "21": 0,
    "foobar": 6,
    "a-little-bit-long-string": 8,
    "schlüssel": 0,
    "ключ": 8,
    "鍵": 0,
    "🗝️": 10,
    "visitor-17": 10,
    "visitor-18": 3,
    "00000000-0000-0000-0000-000000000000": 9,
    "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": 5,
}
JAVA_RAW = {b"\xff\x00\x80": 10}
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture
def topic(kafka: KafkaServer, topic_prefix: str) -> str:
    """An output topic with twelve partitions."""
    name = f"{topic_prefix}events"
    create_topics(kafka.bootstrap_servers, {name: (12, {})})
    return name


@pytest.mark.guarantee(49)
def test_keys_are_partitioned_as_java_clients_do_whether_the_transform_set_them_or_not(
    outbox: Outbox, kafka: KafkaServer, watcher: Watcher
) -> None:
    session_keys = [key for key in JAVA_PARTITIONS if key]
    outbox.batch({key: [Session([b"1"], 10 + n)] for n, key in enumerate(session_keys)})
    own: list[bytes | None] = [*(key.encode() for key in JAVA_PARTITIONS), *JAVA_RAW]
    outbox.batch({"session": [Session([b"2"] * len(own), 90, keys=own)]})
    with RelayThread(settings_for(outbox.dsn, kafka.bootstrap_servers)):
        wait_until(lambda: drained(outbox.dsn), "every key")
    wait_until(lambda: len(watcher.seen) == len(session_keys) + len(own), "every event")
    found = {(event.key, event.partition) for event in watcher.seen}
    assert found == {(key.encode(), partition) for key, partition in JAVA_PARTITIONS.items()} | set(
        JAVA_RAW.items()
    )


@pytest.mark.guarantee(53)
def test_trace_context_and_cloud_events_go_out_beside_the_outbox_id(
    outbox: Outbox, kafka: KafkaServer, watcher: Watcher, tmp_path: Path
) -> None:
    trace = [["traceparent", TRACE], ["tracestate", "vendor=1"]]
    outbox.batch({"k": [Session([b"{}", b"{}"], 10, headers=[trace, None])]})
    settings = settings_for(
        outbox.dsn,
        kafka.bootstrap_servers,
        {"compression.type": "lz4"},
        cloudevents=True,
        cloudevents_type="{topic}.v1",
    )
    with RelayThread(settings):
        wait_until(lambda: drained(outbox.dsn), "the row")
    assert_exactly_once(outbox, watcher)
    first, second = (dict(event.headers) for event in watcher.seen)
    ((outbox_uuid,),) = query(outbox.dsn, "SELECT outbox_uuid FROM outbox.identity")
    assert (first["traceparent"], first["tracestate"]) == (TRACE.encode(), b"vendor=1")
    assert "traceparent" not in second
    assert second == {
        "outbox-id": f"{TOPIC_ID}/0/10/1".encode(),
        "ce_specversion": b"1.0",
        "ce_id": f"{TOPIC_ID}/0/10/1".encode(),
        "ce_source": f"/spark-outbox/{outbox_uuid}".encode(),
        "ce_type": f"{outbox.topic}.v1".encode(),
        "ce_subject": b"k",
        "content-type": b"application/json",
    }
    # What a setting adds is nothing that an audit finds altered.
    assert failed(run_audit(settings, tmp_path, kafka=True)) == {}


def test_two_outboxes_on_one_input_topic_send_distinct_cloud_events_live_and_replayed(
    outbox: Outbox,
    kafka: KafkaServer,
    watcher: Watcher,
    postgres: PostgresServer,
    template_database: str,
) -> None:
    name = f"test_{uuid.uuid4().hex}"
    other = Outbox(postgres.create_database(name, template=template_database), outbox.topic)
    try:
        query(other.dsn, "UPDATE outbox.identity SET outbox_uuid = gen_random_uuid()")
        for each in (outbox, other):
            each.batch({"k": [Session([b"{}"], 10)]})
            settings = settings_for(each.dsn, kafka.bootstrap_servers, cloudevents=True)
            deliver(settings)
            replayed(settings, "start", "--all", "--yes")
        wait_until(lambda: len(watcher.seen) == 4, "both outboxes' event, each replayed once")
    finally:
        postgres.drop_database(name)
    headers = [dict(event.headers) for event in watcher.seen]
    assert len({event["outbox-id"] for event in headers}) == 1
    assert sorted(Counter((event["ce_source"], event["ce_id"]) for event in headers).values()) == [2, 2]
