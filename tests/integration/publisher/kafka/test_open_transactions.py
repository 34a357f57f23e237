"""A lane writes to no partition where a transaction is open that it did not begin itself; it says so, and continues by itself."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from devstack.kafka import KafkaServer
from service.settings import Settings
from tests.support.outbox.batches import Outbox, simple
from tests.support.outbox.deliveries import assert_exactly_once, status_of
from tests.support.processes.publishers import RelayThread
from tests.support.queries import query
from tests.support.waiting import wait_until
from tests.support.watching import Watcher


@pytest.fixture
def other(kafka: KafkaServer, topic: str) -> Iterator[Producer]:
    """Somebody else's producer, its transaction open on one partition of the output topic."""
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "transactional.id": f"{topic}-other",
            "transaction.timeout.ms": 120_000,
            "log_level": 0,
        }
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"in the way", partition=1)
    assert producer.flush(30) == 0
    yield producer
    producer.abort_transaction(30)


@pytest.mark.guarantee(31)
def test_an_open_transaction_holds_the_lanes_until_it_ends(
    outbox: Outbox, settings: Settings, watcher: Watcher, other: Producer
) -> None:
    def reasons() -> list[str]:
        return [lane.stopped_reason or "" for lane in status_of(outbox.dsn).lanes]

    outbox.batch(simple(1, keys=6))
    with RelayThread(settings) as relay:
        wait_until(lambda: len(reasons()) == 2 and all(reasons()), lambda: str(reasons()))
        for reason in reasons():
            assert reason.startswith("open_transaction:")
            assert f"{outbox.topic}[1] from offset 0 on" in reason
            assert "kafka-transactions.sh abort" in reason
        assert query(outbox.dsn, "SELECT count(*) FROM outbox.delivery WHERE events > 0") == [(0,)]
        other.abort_transaction(30)
        assert_exactly_once(outbox, watcher)
        wait_until(lambda: not any(reasons()), lambda: str(reasons()))
        other.begin_transaction()
    assert relay.error is None


def test_one_that_begins_later_holds_nobody(
    outbox: Outbox, settings: Settings, watcher: Watcher, other: Producer
) -> None:
    other.abort_transaction(30)
    with RelayThread(settings) as relay:
        outbox.batch(simple(1, keys=6))
        assert_exactly_once(outbox, watcher)
        other.begin_transaction()
        other.produce(outbox.topic, b"in the way", partition=1)
        assert other.flush(30) == 0
        delivered = query(outbox.dsn, "SELECT coalesce(max(to_batch), 0) FROM outbox.delivery")
        assert delivered == [(1,)]
        outbox.batch(simple(2, keys=6))
        wait_until(
            lambda: (
                query(
                    outbox.dsn,
                    "SELECT count(*) FROM outbox.lane WHERE cursor_batch = 2 AND cursor_key IS NULL",
                )
                == [(2,)]
            ),
            "the delivery of the second batch",
        )
    assert relay.error is None
