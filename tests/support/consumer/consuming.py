"""The kit at work in this process, until it has consumed all that is there: its effects are rows of the table `effect`."""

import time
from contextlib import closing
from typing import Any

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from outbox_consumer import consume
from tests.support.waiting import DEADLINE_S


def consume_there(
    connection: Any, servers: str, group: str, *topics: str, apply: Any = None, **given: Any
) -> int:
    """Consume up to the ends that the topics have now; return how many outputs were handed out. `apply(connection, output)`: the block."""
    ends = ends_of(servers, *topics)
    deadline = time.monotonic() + DEADLINE_S
    handed = 0

    def stop() -> bool:
        assert time.monotonic() < deadline, (ends, _positions(connection, group))
        found = _positions(connection, group)
        # Behind the last record is the marker of its transaction.
        return all(found.get(partition, 0) >= end - 1 for partition, end in ends.items())

    options = {"bootstrap.servers": servers, "group.id": group, "log_level": 0}
    for output in consume(connection, options, list(topics), stop=stop, **given):
        with output:
            handed += 1
            if apply is not None:
                apply(connection, output)
    return handed


def ends_of(servers: str, *topics: str) -> dict[tuple[str, int], int]:
    """The high watermarks of topics."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    partitions = [
        TopicPartition(topic, partition)
        for topic in topics
        for partition in admin.list_topics(topic, timeout=30).topics[topic].partitions
    ]
    asked = admin.list_offsets({partition: OffsetSpec.latest() for partition in partitions})  # type: ignore[no-untyped-call]
    return {
        (partition.topic, partition.partition): answer.result(30).offset
        for partition, answer in asked.items()
    }


def _positions(connection: Any, group: str) -> dict[tuple[str, int], int]:
    with closing(connection.cursor()) as cursor:
        try:
            cursor.execute("SELECT consumer, topic, partition, next_offset FROM outbox_consumer_position")
            rows = cursor.fetchall()
            return {
                (topic, partition): offset for consumer, topic, partition, offset in rows if consumer == group
            }
        except Exception:  # noqa: BLE001  # the tables are made when the loop begins
            return {}
        finally:
            connection.rollback()
