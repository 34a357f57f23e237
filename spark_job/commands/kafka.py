"""Questions about the input from a command. Apart from the rest, because KafkaInput imports Spark, which costs seconds."""

from collections.abc import Iterator
from contextlib import contextmanager

from db.settings import Settings
from spark_job.kafka_input import KafkaInput


@contextmanager
def kafka_input(settings: Settings) -> Iterator[KafkaInput]:
    """Ask Kafka about the input topics, in no consumer group."""
    kafka = KafkaInput(settings.kafka, settings.source.topics, "")
    try:
        yield kafka
    finally:
        kafka.close()
