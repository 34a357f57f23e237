"""Kafka's own client takes the kit's calls: with the broker that librdkafka has for tests, in this process."""

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from outbox_consumer import Output, partitions
from outbox_consumer.loop import Loop
from outbox_consumer.partitions import Partitions
from outbox_consumer.store import Store
from tests.support.consumer.group import Broker

Send = Callable[[int, int], None]


@pytest.fixture
def broker() -> tuple[str, Send]:
    """Its address, and what writes outputs (from, to) into a topic `orders`."""
    producer = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "none", "log_level": 0})
    (found,) = producer.list_topics("orders", timeout=30).brokers.values()

    def send(first: int, end: int) -> None:
        for number in range(first, end):
            producer.produce(
                "orders", b"%d" % number, b"key", headers={"outbox-id": f"T/0/{number}/0".encode()}
            )
        assert producer.flush(30) == 0

    return f"{found.host}:{found.port}", send


def test_a_kafka_that_gives_no_sign_of_life_ends_the_loop_and_a_quiet_one_does_not(
    broker: tuple[str, Send], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "_QUIET_S", 0.0)
    topics = Broker(orders=4)

    def fetch(servers: str) -> None:
        options = {"bootstrap.servers": servers, "group.id": "quiet", "log_level": 0}
        with closing(sqlite3.connect(tmp_path / "consumer.db")) as connection:
            store = Store(connection, "billing")
            store.prepare()
            reading = Partitions(store, options, ["orders"], "earliest", admin=topics.admin)
            try:
                for _ in range(3):
                    assert reading.fetch(10) == []
            finally:
                reading.close()

    fetch(broker[0])
    monkeypatch.setattr(partitions, "_ANSWER_S", 1.0)
    with pytest.raises(KafkaException):
        fetch("127.0.0.1:1")


def test_a_position_with_its_leader_epoch_is_where_the_next_start_continues(
    broker: tuple[str, Send], tmp_path: Path
) -> None:
    servers, send = broker
    # That broker has no topic ids.
    topics = Broker(orders=4)

    def run(count: int, group: str) -> list[bytes | None]:
        seen: list[Output] = []
        deadline = time.monotonic() + 60
        # A group of its own: that broker lets nobody in after a member that has left.
        options = {"bootstrap.servers": servers, "group.id": group, "log_level": 0}
        with closing(sqlite3.connect(tmp_path / "consumer.db")) as connection:
            store = Store(connection, "billing")
            partitions = Partitions(store, options, ["orders"], "earliest", admin=topics.admin)
            loop = Loop(store, partitions, 1, None, lambda: len(seen) >= count or time.monotonic() > deadline)
            for output in loop.run():
                with output:
                    seen.append(output)
            rows = connection.execute(
                "SELECT next_offset, leader_epoch FROM outbox_consumer_position WHERE next_offset > 0"
            )
            assert rows.fetchall() == [(seen[-1].offset + 1, 0)]
        return [output.value for output in seen]

    send(0, 20)
    assert run(20, "first") == [b"%d" % number for number in range(20)]
    send(20, 25)
    assert run(5, "second") == [b"%d" % number for number in range(20, 25)]
