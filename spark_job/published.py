"""How far the publisher has got, by its own records in Kafka: what bounds the repetitions after the database lost its end.

The progress topic is part of the contract (design §5): one compacted partition for each lane, values `{"cursor": [batch_id, key], …}`.
"""

from uuid import UUID

import orjson
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from db.errors import UnavailableError
from db.settings import Settings

_TIMEOUT_S = 10.0  # asked while the writer lock is held


def newest_batch(settings: Settings, outbox_uuid: UUID) -> int | None:
    """Return the greatest batch of which something is in Kafka, None where there is no progress record.

    Raises UnavailableError when Kafka does not answer.
    """
    topic = f"{settings.publisher.progress_topic}-{outbox_uuid}"
    consumer = Consumer(
        settings.kafka.client()
        | {
            "group.id": f"{topic}-look",  # never committed; the client wants one
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=_TIMEOUT_S).topics[topic].partitions
        if not partitions:
            return None
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        return _greatest(consumer, len(partitions))
    except KafkaException as error:
        raise UnavailableError(
            f"the progress topic {topic} cannot be read: {error.args[0].str()}. Check [kafka] bootstrap_servers and [kafka.options]"
        ) from error
    finally:
        consumer.close()


def _greatest(consumer: Consumer, open_partitions: int) -> int | None:
    greatest: int | None = None
    while open_partitions:
        message = consumer.poll(_TIMEOUT_S)
        if message is None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        failure = message.error()
        if failure is not None:
            if failure.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(failure)
            open_partitions -= 1
        elif (value := message.value()) is not None:
            batch_id = orjson.loads(value)["cursor"][0]
            greatest = max(greatest or 0, batch_id)
    return greatest
