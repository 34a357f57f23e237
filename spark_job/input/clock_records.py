"""Clock records: find quiet input partitions, and write a record with the current time into each (docs/decisions/0047).

A partition is quiet while this process does not see its end move. Records' times are ignored: a record with a time in the future would make
its partition seem busy. If several processes write clock records, the first one's record moves the end, and the others do not write.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from service.kafka.client import QUIET, failure_of
from service.kafka.reading import NamedPartition
from service.kafka.rights import needing
from service.logins.kafka import logged_in
from service.settings import KafkaSettings
from spark_job.input.columns import CLOCK_HEADER, CLOCK_MARK

KEY = CLOCK_HEADER.encode()
"""The key of a clock record. It is for people; the job does not read it."""
NEEDS = "Write"
"""The right on the input topics that writing clock records needs. Kafka's Write includes Describe."""


class QuietPartitions:
    """Each partition's end, and since when it has not moved."""

    def __init__(self, quiet_for_s: float) -> None:
        self._quiet_for_s = quiet_for_s
        self._seen: dict[NamedPartition, tuple[int, float]] = {}

    def look(self, ends: Mapping[NamedPartition, int], now_s: float) -> list[NamedPartition]:
        """Return the partitions whose end has not moved for `quiet_for_s`. `now_s`: the time of a monotonic clock.

        Leaves out partitions that have never had a record: they have no session that could fall silent.
        """
        for place, end in ends.items():
            if place not in self._seen or self._seen[place][0] != end:
                self._seen[place] = end, now_s
        return [
            place
            for place, end in ends.items()
            if end > 0 and now_s - self._seen[place][1] >= self._quiet_for_s
        ]

    def wrote(self, offsets: Mapping[NamedPartition, int], now_s: float) -> None:
        """Note the clock records that this process has written. A partition gets the next one if no record follows for `quiet_for_s`."""
        for place, offset in offsets.items():
            self._seen[place] = offset + 1, now_s


def write_clock_records(kafka: KafkaSettings, places: Iterable[NamedPartition]) -> dict[NamedPartition, int]:
    """Write one record into each partition; return their offsets.

    Raises UnavailableError or RefusedError if a record was not written. Other records may have been written; that does no harm.
    """
    offsets: dict[NamedPartition, int] = {}
    failed: list[KafkaError] = []

    def note(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failed.append(error)
        else:
            offsets[str(message.topic()), int(message.partition() or 0)] = int(message.offset() or 0)

    def note_fatal(error: KafkaError) -> None:
        if error.fatal():  # the cause of the records' failures
            failed.insert(0, error)

    required: dict[str, Any] = {"acks": "all", "enable.idempotence": True, "allow.auto.create.topics": False}
    options: dict[str, Any] = QUIET | {"message.timeout.ms": kafka.request_timeout_s * 1000}
    options |= kafka.client(**required) | {"error_cb": note_fatal}
    headers: Any = [(CLOCK_HEADER, CLOCK_MARK)]
    wanted = list(places)
    try:
        with needing("Write", "topic", *sorted({topic for topic, _ in wanted})):
            producer = Producer(logged_in(options))
            try:
                for topic, partition in wanted:
                    producer.produce(topic, None, KEY, partition=partition, headers=headers, on_delivery=note)
                producer.flush()  # each record is written or has failed after `message.timeout.ms`
            finally:
                with suppress(KafkaException):  # a fatal error, once more
                    producer.close()
            if failed:
                raise KafkaException(failed[0])
    except KafkaException as error:
        raise failure_of(kafka, error, f"{NEEDS} on the input topics") from error
    return offsets
