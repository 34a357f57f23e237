"""Questions about the input from a command."""

from collections.abc import Iterator
from contextlib import contextmanager

from service.settings import Settings
from spark_job.input.topics import KafkaInput


@contextmanager
def kafka_input(settings: Settings) -> Iterator[KafkaInput]:
    """Ask Kafka about the input topics, in no consumer group."""
    kafka = KafkaInput(settings.kafka, settings.source.topics, "")
    try:
        yield kafka
    finally:
        kafka.close()
