"""A consumer's own database, a topic, and a producer of transactions."""

import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer

from devstack.databases import PostgresServer
from devstack.kafka import KafkaServer
from devstack.topics import create_topics
from tests.support.consumer.group import Record, Send
from tests.support.consumer.program import EFFECTS


@pytest.fixture
def own_database(postgres: PostgresServer) -> Iterator[str]:
    """DSN of an empty database with the table `effect`."""
    name = f"test_{uuid.uuid4().hex}"
    dsn = postgres.create_database(name)
    with psycopg.connect(dsn) as connection:
        connection.execute(EFFECTS)
    yield dsn
    postgres.drop_database(name)


@pytest.fixture
def topic(kafka: KafkaServer, topic_prefix: str) -> str:
    """An output topic with two partitions."""
    name = f"{topic_prefix}outputs"
    create_topics(kafka.bootstrap_servers, {name: (2, {})})
    return name


@pytest.fixture
def options(kafka: KafkaServer, topic_prefix: str) -> dict[str, Any]:
    """librdkafka's options of a consumer."""
    return {"bootstrap.servers": kafka.bootstrap_servers, "group.id": f"{topic_prefix}group", "log_level": 0}


@pytest.fixture
def send(kafka: KafkaServer, topic: str, topic_prefix: str) -> Send:
    """Writes records to a partition, in one Kafka transaction; `abort`: and takes them back."""
    options: dict[str, str | int] = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "transactional.id": f"{topic_prefix}sender",
        "log_level": 0,
    }

    def write(partition: int, records: Sequence[Record], *, abort: bool = False) -> None:
        # A new one each time: it knows nothing of a topic that was there before.
        producer = Producer(options)
        producer.init_transactions(30)
        producer.begin_transaction()
        for record in records:
            producer.produce(topic, record.value, b"key", partition, headers=record.all_headers())
        producer.flush(30)
        if abort:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)

    return write
