"""Topics as they are now: where their partitions end, and what is in them."""

import time
from collections.abc import Iterable, Iterator, Mapping

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from tests.support.waiting import DEADLINE_S

_READ_TIMEOUT_S = 300.0


def end_offsets(bootstrap: str, topics: Iterable[str], *, committed: bool) -> dict[tuple[str, int], int]:
    """{(topic, partition): end} of what a read_committed consumer may read, or of all.

    A broker that has just started may refuse for a moment: it is asked again then.
    """
    admin, wanted = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}), list(topics)
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            return _end_offsets(admin, wanted, committed=committed)
        except (KafkaException, LookupError):
            if time.monotonic() > deadline:
                raise
        time.sleep(0.1)


def _end_offsets(admin: AdminClient, topics: list[str], *, committed: bool) -> dict[tuple[str, int], int]:
    described = admin.list_topics(timeout=30).topics
    for topic in topics:
        if topic not in described or not described[topic].partitions:
            raise LookupError(f"there is no topic {topic}")
    asked = admin.list_offsets(
        {
            TopicPartition(topic, partition): OffsetSpec.latest()  # type: ignore[no-untyped-call]
            for topic in topics
            for partition in described[topic].partitions
        },
        isolation_level=IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED,
    )
    return {(place.topic, place.partition): answer.result().offset for place, answer in asked.items()}


def read_to_end(
    bootstrap: str,
    *topics: str,
    isolation: str = "read_committed",
    starts: Mapping[tuple[str, int], int] | None = None,
) -> Iterator[Message]:
    """Every record of the topics, from the first that they have to their ends of now. Topics that do not exist have none.

    `starts`: where reading begins in partitions that are not read from their first record.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 20,
            "log_level": 0,
        }
    )
    try:
        described = consumer.list_topics(timeout=30).topics
        unread = {
            (topic, each) for topic in topics if topic in described for each in described[topic].partitions
        }
        if not unread:
            return
        consumer.assign([TopicPartition(*place, (starts or {}).get(place, 0)) for place in unread])
        deadline = time.monotonic() + _READ_TIMEOUT_S
        while unread:
            assert time.monotonic() < deadline, f"the ends of {unread} did not come"
            for message in consumer.consume(10_000, timeout=0.1):
                error = message.error()
                if error is None:
                    yield message
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    unread.discard((message.topic() or "", message.partition() or 0))
    finally:
        consumer.close()
