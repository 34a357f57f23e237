"""The existing topics and their configuration, read the same way by both services.

A broker that has just started, or lags, may not know every topic: its answer alone does not prove that a topic is missing.
"""

import ctypes
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Literal

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it exports them, without saying so to mypy
    AdminClient,
    ConfigEntry,
    ConfigResource,
    ListOffsetsResultInfo,
    OffsetSpec,
    ResourceType,
    TopicDescription,
)
from confluent_kafka.cimpl import NewTopic

from service.kafka.client import UNAUTHORISED, KafkaAdmin
from service.kafka.renewable_client import Answer
from service.kafka.rights import needing
from service.lifecycle.tracebacks import without_traceback

MISSING_S = 5.0
"""Seconds for which a topic that the brokers do not know is looked up again, unless the controller says that it is missing."""
_POLL_S = 0.2
# The answer holds every setting of each topic: some kilobytes.
_TOPICS_A_REQUEST = 500
# Errors with which the controller refuses to create a missing topic: the name collides with another one (`.` equals `_`), a policy forbids
# it, or brokers are too few. If the topic exists, the controller answers TOPIC_ALREADY_EXISTS instead.
_REFUSES_NEW_TOPICS = (
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.POLICY_VIOLATION,
    KafkaError.INVALID_REPLICATION_FACTOR,
    KafkaError.INVALID_CONFIG,
)


def existing_topics(
    admin: KafkaAdmin,
    names: Sequence[str],
    timeout_s: float,
    give_up: Callable[[], bool] = lambda: False,
    missing_s: float = MISSING_S,
) -> dict[str, TopicDescription]:
    """Describe those of the topics that exist.

    The controller says whether a topic is missing. If the client may not ask the controller, a topic is missing once the brokers have not
    known it for `missing_s`. Raises KafkaException; also if, after `missing_s`, the brokers do not know a topic that the controller has not
    called missing, or when `give_up` returns True.
    """
    deadline = time.monotonic() + missing_s
    while True:
        found = known_topics(admin, names, timeout_s, give_up)
        unknown = [name for name in names if name not in found]
        late = time.monotonic() > deadline
        lagging = [name for name in unknown if not _is_missing(admin, name, timeout_s, give_up, late)]
        if not lagging:
            return found
        if late or give_up():
            unknown_names = ", ".join(map(repr, lagging))
            text = f"the brokers do not know {unknown_names} yet, but the controller does not report a missing topic"
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, text))
        time.sleep(_POLL_S)


def known_topics(
    admin: KafkaAdmin,
    names: Sequence[str],
    timeout_s: float,
    give_up: Callable[[], bool] = lambda: False,
) -> dict[str, TopicDescription]:
    """Describe those of the topics that the brokers know now. Raises KafkaException."""
    if not names:
        return {}
    wanted = TopicCollection(list(names))
    answers = admin.answers_within(
        timeout_s,
        lambda client, wait_s: client.describe_topics(wanted, request_timeout=wait_s),
        give_up,
    )
    found = {}
    for name in names:
        try:
            with needing("Describe", "topic", name):
                found[name] = answers[name].result()
                _release_id(found[name])
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
    return found


_OWN_REFERENCES = 3
"""Expected references to a topic's id: from the description, from `topic_id`, and from getrefcount's argument."""


def _release_id(description: TopicDescription) -> None:
    """Give up the reference that confluent-kafka 2.16 takes to a topic's id and never gives up.

    Each description would leave its id in memory: some 40 MB a day if a job describes one topic in each of five batches a second.
    """
    topic_id = description.topic_id
    if isinstance(description, TopicDescription) and sys.getrefcount(topic_id) > _OWN_REFERENCES:
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(topic_id))


def topic_configs(
    admin: KafkaAdmin,
    names: Iterable[str],
    timeout_s: float,
    give_up: Callable[[], bool] = lambda: False,
) -> dict[str, dict[str, ConfigEntry]]:
    """Return the settings of topics, which must exist. Raises KafkaException."""
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    found: dict[str, dict[str, ConfigEntry]] = {}
    for first in range(0, len(resources), _TOPICS_A_REQUEST):
        some = resources[first : first + _TOPICS_A_REQUEST]

        def ask(
            client: AdminClient, wait_s: float, some: list[ConfigResource] = some
        ) -> "dict[ConfigResource, Future[dict[str, ConfigEntry]]]":
            return client.describe_configs(some, request_timeout=wait_s)

        for resource, answer in admin.answers_within(timeout_s, ask, give_up).items():
            with needing("DescribeConfigs", "topic", resource.name):
                found[resource.name] = answer.result()
    return found


def partition_offsets(
    admin: KafkaAdmin,
    partitions: Iterable[tuple[str, int]],
    which: Literal["earliest", "latest"],
    timeout_s: float,
    give_up: Callable[[], bool] = lambda: False,
    *,
    committed: bool = False,
) -> dict[tuple[str, int], int]:
    """Return the first offset or the end of each partition (topic, number), as its leader reports it. Raises KafkaException.

    `committed`: the end is where the first open transaction begins.
    """
    spec = OffsetSpec.earliest() if which == "earliest" else OffsetSpec.latest()  # type: ignore[no-untyped-call]
    return _listed(admin, partitions, spec, timeout_s, give_up, committed=committed)


def offsets_at(
    admin: KafkaAdmin,
    partitions: Iterable[tuple[str, int]],
    at_ms: int,
    timeout_s: float,
) -> dict[tuple[str, int], int | None]:
    """Return the offset of each partition's first committed record of time `at_ms` or later; None if there is none.

    Raises KafkaException.
    """
    spec = OffsetSpec.for_timestamp(at_ms)
    found = _listed(admin, partitions, spec, timeout_s, lambda: False, committed=True, least=_NO_SUCH)
    return {partition: None if offset == _NO_SUCH else offset for partition, offset in found.items()}


_NO_SUCH = -1


def _listed(
    admin: KafkaAdmin,
    partitions: Iterable[tuple[str, int]],
    spec: OffsetSpec,
    timeout_s: float,
    give_up: Callable[[], bool],
    *,
    committed: bool,
    least: int = 0,
) -> dict[tuple[str, int], int]:
    """Return the offset that each leader reports. `least`: a leader that returns a lower offset has not answered."""
    wanted = {TopicPartition(*partition): spec for partition in partitions}
    if not wanted:
        return {}
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    answers = admin.answers_within(
        timeout_s,
        lambda client, wait_s: client.list_offsets(wanted, isolation_level=level, request_timeout=wait_s),
        give_up,
        partial(_leaders_answered, least=least),
    )
    found = {}
    for partition, answer in answers.items():
        with needing("Describe", "topic", partition.topic):
            found[partition.topic, partition.partition] = int(answer.result().offset)
    return found


def _leaders_answered(answers: Mapping[TopicPartition, Answer[ListOffsetsResultInfo]], least: int) -> None:
    """Raise KafkaException if a leader did not answer in time: librdkafka 2.16 then returns offset -1001 without an error."""
    for partition, answer in answers.items():
        if answer.error is None and answer.result().offset < least:
            text = f"the leader of {partition.topic}/{partition.partition} does not answer"
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, text))


def _is_missing(
    admin: KafkaAdmin, topic: str, timeout_s: float, give_up: Callable[[], bool], late: bool
) -> bool:
    """Return whether a topic unknown to the brokers does not exist: the controller validates a creation of it.

    `late`: the answer for a client without the right to ask the controller.
    """
    new = NewTopic(topic, num_partitions=1, replication_factor=1)
    checked = admin.answers_within(
        timeout_s,
        lambda client, wait_s: client.create_topics([new], validate_only=True, request_timeout=wait_s),
        give_up,
    )
    error = checked[topic].error
    if error is None:
        return True
    code = error.args[0].code() if isinstance(error, KafkaException) else None
    if code in UNAUTHORISED:
        return late
    if code in _REFUSES_NEW_TOPICS:
        return True
    if code == KafkaError.TOPIC_ALREADY_EXISTS:
        return False
    raise without_traceback(error)
