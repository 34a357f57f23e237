"""A range of offsets read from Kafka beside Spark: to find open sessions again, and to name a record that Spark cannot read."""

from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException

from service.kafka.reading import EndNotReachedError, RangeReader
from service.kafka.rights import needing

# None is joined, and no offset is committed; the client wants a name.
_GROUP = "outbox-rebuild"
_GONE = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)


class RecordsGoneError(Exception):
    """Kafka answers, but has deleted records that are needed."""


class NoAnswerError(Exception):
    """Kafka did not give the records in time."""


def committed_records(
    client: Mapping[str, str | int | float | bool],
    topic: str,
    partition: int,
    start: int,
    end: int,
    timeout_s: float,
) -> Iterator[list[Any]]:
    """Yield the committed records of [start, end) in offset order, as confluent-kafka's messages, some at a time.

    `client`: `[kafka]` as librdkafka takes it. `timeout_s`: from one record to the next.
    Raises RecordsGoneError, NoAnswerError, KafkaException.
    """
    options = {
        **client,
        "group.id": _GROUP,
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "fetch.wait.max.ms": 10,
        "fetch.queue.backoff.ms": 10,  # by default it rests for a second whenever enough is queued
        "queued.max.messages.kbytes": 256 * 1024,
        "log_level": 0,
    }
    place = f"{topic}/{partition}"
    try:
        with (
            RangeReader(lambda: Consumer(options), timeout_s) as reader,
            needing("Read", "topic", topic),
            needing("Describe", "consumer group", _GROUP),
        ):
            yield from reader.read({(topic, partition): (start, end)})
    except EndNotReachedError as error:
        raise NoAnswerError(f"{error.args[0].str()} ([kafka] request_timeout_s)") from error
    except KafkaException as error:
        if error.args[0].code() not in _GONE:
            raise
        text = f"{place}: Kafka has deleted offsets from {start} on, up to {end} are needed: {error.args[0].str()}"
        raise RecordsGoneError(text) from error
