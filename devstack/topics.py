"""Creating topics, for tests, the demo and the benchmarks."""

import time
from collections.abc import Iterable, Mapping

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

from devstack.processes.errors import DevstackError

TIMEOUT_S = 30.0
_POLL_S = 0.02

TopicSpec = tuple[int, Mapping[str, str]]
"""(partitions, topic settings by name)"""


def create_topics(bootstrap: str, topics: Mapping[str, TopicSpec]) -> None:
    """Create the topics that do not exist yet and return when each partition has a leader.

    Raises DevstackError when a topic exists with another number of partitions, when the broker refuses one,
    or when there is no leader after 30 s. Settings of a topic that exists are left as they are.
    """
    client = AdminClient({"bootstrap.servers": bootstrap})
    wanted = [
        NewTopic(name, num_partitions=partitions, replication_factor=-1, config=dict(config))
        for name, (partitions, config) in topics.items()
    ]
    if not wanted:
        return
    for name, future in client.create_topics(wanted, operation_timeout=TIMEOUT_S).items():
        try:
            future.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise DevstackError(f"topic {name!r} could not be created: {error.args[0].str()}") from error
    for name, (partitions, _) in topics.items():
        found = _count_with_leaders(client, name)
        if found != partitions:
            raise DevstackError(
                f"topic {name!r} exists with {found} partitions, {partitions} were asked for; "
                "delete it or take another name"
            )


def _count_with_leaders(client: AdminClient, name: str) -> int:
    """The topic's number of partitions, once every one has a leader, a moment after the creation."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        topic = client.list_topics(name, timeout=TIMEOUT_S).topics[name]
        has_leaders = topic.error is None and all(each.leader >= 0 for each in topic.partitions.values())
        if has_leaders and _is_served(client, name, topic.partitions):
            return len(topic.partitions)
        if time.monotonic() > deadline:
            raise DevstackError(
                f"topic {name!r} has partitions without a leader after {TIMEOUT_S:g} s: {topic.error}"
            )
        time.sleep(_POLL_S)


def _is_served(client: AdminClient, name: str, partitions: Iterable[int]) -> bool:
    """Whether the leaders answer: a busy broker says that it leads a partition a moment before it does."""
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    wanted = {TopicPartition(name, partition): latest for partition in partitions}
    try:
        for answer in client.list_offsets(wanted, request_timeout=TIMEOUT_S).values():
            answer.result()
    except KafkaException:
        return False
    return True
