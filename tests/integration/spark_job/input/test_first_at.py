"""Which record of a real partition is the first one of a time or later."""

from datetime import UTC, datetime, timedelta

from confluent_kafka import Producer

from devstack.kafka import KafkaServer
from devstack.topics import create_topics
from service.settings import KafkaSettings
from spark_job.input.offsets import TopicPartition
from spark_job.input.topics import KafkaInput
from spark_job.recovery.starting_offsets import at_time

TEN = datetime(2026, 11, 24, 10, tzinfo=UTC)


def test_it_is_the_first_committed_one_and_the_end_where_there_is_none(
    kafka: KafkaServer, topic_prefix: str
) -> None:
    """Partition 0: two before, one of then, one before again. 1: as late is only one of an open transaction. 2: all before. 3: empty."""
    topic = f"{topic_prefix}times"
    create_topics(kafka.bootstrap_servers, {topic: (4, {})})
    quiet = {"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0}
    producer = Producer(quiet)

    def send(to: Producer, partition: int, *seconds: float) -> None:
        for each in seconds:
            at = TEN + timedelta(seconds=each)
            to.produce(topic, b"x", partition=partition, timestamp=round(at.timestamp() * 1000))
        to.flush()

    send(producer, 0, -20, -10, 0, -5, 1)
    send(producer, 1, -20)
    send(producer, 2, -20, -10)
    unfinished = Producer(quiet | {"transactional.id": topic})
    unfinished.init_transactions()
    unfinished.begin_transaction()
    send(unfinished, 1, 5)
    client = KafkaInput(KafkaSettings(bootstrap_servers=kafka.bootstrap_servers), [topic], "")
    try:
        topics = client.describe()
        found, late = at_time(client, topics, TEN)
        by_number = {where.partition: offset for where, offset in found.items()}
        assert by_number == {0: 2, 1: 1, 2: 2, 3: 0}
        assert [where.partition for where in late] == [1, 2, 3]
        just_after = client.first_at(topics, TEN + timedelta(microseconds=1))
        assert just_after == {TopicPartition(topics.ids[topic], 0): 4}
        unfinished.abort_transaction()
    finally:
        client.close()
