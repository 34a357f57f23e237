"""Tests the properties of Kafka that both services rely on. One function tests each property on the scratch topic, in the order of
CHECKS."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import TIMESTAMP_CREATE_TIME, KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it exports them, without saying so to mypy
    AclOperation,
    TopicDescription,
)

from publisher.cluster_check.scratch import Scratch
from publisher.protocol.stop_reasons import StoppedError, TopicMissingError
from service.commands.checks import CheckAnswer, ServerCheck
from service.kafka.client import UNAUTHORISED
from service.kafka.record_headers import headers_of
from service.kafka.topic_ids import NO_ID, topic_id_text
from service.kafka.topics import known_topics, topic_configs
from service.settings import Settings

_WHOLE, _TOMBSTONE, _FENCED, _SUCCESSOR, _ABORTED = (
    b"whole",
    b"tombstone",
    b"fenced",
    b"successor",
    b"aborted",
)
_HEADERS: list[tuple[str, bytes | None]] = [
    ("outbox-id", b"one"),
    ("empty", b""),
    ("null", None),
    ("outbox-id", b"two"),
]
# An hour ago, so that the broker's own clock cannot have set this time.
_AGO_MS = 3_600_000
_TRANSACTION_LOG = "__transaction_state"
_REPLICAS = 3
_LSO_WAIT_S = 10.0
_POLL_S = 0.05
_UNSUPPORTED = (
    KafkaError.UNSUPPORTED_VERSION,
    KafkaError._UNSUPPORTED_FEATURE,
    KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
)
_NOT_KAFKA = "use a Kafka 3.1 or newer, or a service that has this (docs/managed-services.md)"
_GRANT = "grant it (docs/ecosystem.md#rights-in-kafka)"


def _topic_ids(scratch: Scratch) -> CheckAnswer:
    found = known_topics(scratch.admin, [scratch.topic], scratch.timeout_s, scratch.give_up)
    topic_id = topic_id_text(found[scratch.topic].topic_id)
    if topic_id == NO_ID:
        return CheckAnswer("not supported", "the brokers give topics no ids", _NOT_KAFKA)
    return CheckAnswer("ok", f"the scratch topic has id {topic_id}")


def _compaction(scratch: Scratch) -> CheckAnswer:
    configs = topic_configs(scratch.admin, [scratch.topic], scratch.timeout_s, scratch.give_up)
    policy = str(configs[scratch.topic]["cleanup.policy"].value)
    if scratch.settings_refused is not None or policy != "compact":
        said = scratch.settings_refused or f"made with cleanup.policy={policy}"
        return CheckAnswer(
            "failed",
            f"the publisher cannot make its progress topic as it needs it: {said}",
            "make it yourself before the first start, compacted (docs/managed-services.md#kafka-msk-confluent-cloud-aiven)",
        )
    return CheckAnswer("ok", "a compacted topic with small segments was made")


def _transaction_timeout(scratch: Scratch) -> CheckAnswer:
    timeout_ms = scratch.settings.publisher.transaction_timeout_ms
    scratch.producer(timeout_ms)
    return CheckAnswer("ok", f"transaction_timeout_ms = {timeout_ms}")


def _transactions(scratch: Scratch) -> CheckAnswer:
    producer = scratch.producer()
    producer.begin_transaction()
    sent_ms = int(time.time() * 1000) - _AGO_MS
    first = scratch.produce(producer, _WHOLE, b"value", headers=_HEADERS, timestamp=sent_ms)
    second = scratch.produce(producer, _TOMBSTONE, None)
    scratch.commit(producer, _WHOLE, _TOMBSTONE)
    scratch.sent_ms = sent_ms
    if not 0 <= first < second:
        return CheckAnswer(
            "not supported",
            f"the reports name the offsets {first} and {second}",
            "use brokers whose delivery reports name offsets: the publisher's log of deliveries needs them",
        )
    return CheckAnswer("ok", f"committed; the reports name the offsets {first} and {second}")


def _fencing(scratch: Scratch) -> CheckAnswer:
    older = scratch.producer()
    older.begin_transaction()
    scratch.produce(older, _FENCED)
    successor = scratch.producer()
    try:
        older.commit_transaction(scratch.timeout_s)
    except KafkaException as error:
        refusal = error.args[0]
        if refusal.retriable():
            raise
    else:
        return CheckAnswer(
            "failed",
            "an older producer of the same transactional id committed after its successor had begun",
            f"do not use this cluster: two publishers could send the same rows twice; {_NOT_KAFKA}",
        )
    successor.begin_transaction()
    scratch.produce(successor, _SUCCESSOR)
    scratch.commit(successor, _SUCCESSOR)
    return CheckAnswer("ok", f"an older producer was refused ({refusal.name()})")


def _last_stable_offset(scratch: Scratch) -> CheckAnswer:
    producer = scratch.producer()
    producer.begin_transaction()
    offset = scratch.produce(producer, _ABORTED)
    stable, end = scratch.end(committed=True), scratch.end(committed=False)
    producer.abort_transaction(scratch.timeout_s)
    if not stable <= offset < end:
        return CheckAnswer(
            "not supported",
            f"with a transaction open from offset {offset} on, the last stable offset is {stable} and the end {end}",
            _NOT_KAFKA,
        )
    deadline = time.monotonic() + _LSO_WAIT_S
    while (stable := scratch.end(committed=True)) <= offset:
        if scratch.give_up() or time.monotonic() > deadline:
            return CheckAnswer(
                "failed",
                f"{_LSO_WAIT_S:g} s after a transaction was aborted, the last stable offset is {stable}, not yet beyond that transaction",
                "look for hanging transactions: kafka-transactions.sh find-hanging (docs/kafka.md)",
            )
        time.sleep(_POLL_S)
    return CheckAnswer("ok", "an open transaction holds it back; after the abort it moves on")


def _isolation(scratch: Scratch) -> CheckAnswer:
    keys = [message.key() for message in scratch.read()]
    if keys != scratch.committed:
        return CheckAnswer(
            "not supported",
            f"{_listed(scratch.committed)} were committed, but a read_committed consumer got {_listed(keys)}",
            _NOT_KAFKA,
        )
    return CheckAnswer("ok", f"{len(keys)} committed records were read, fenced and aborted ones were not")


def _timestamps(scratch: Scratch) -> CheckAnswer:
    kind, at_ms = _record(scratch, _WHOLE).timestamp()
    if kind != TIMESTAMP_CREATE_TIME:
        return CheckAnswer(
            "warning",
            "the broker replaces times by its own (message.timestamp.type = LogAppendTime)",
            "set message.timestamp.type = CreateTime on topics whose outputs have times of their own",
        )
    if at_ms != scratch.sent_ms:
        return CheckAnswer("failed", f"{scratch.sent_ms} was sent and {at_ms} read", _NOT_KAFKA)
    return CheckAnswer("ok", "a record's own time was read back")


def _headers(scratch: Scratch) -> CheckAnswer:
    found = headers_of(_record(scratch, _WHOLE))
    if found != _HEADERS:
        return CheckAnswer("not supported", f"{_HEADERS} was sent and {found} read", _NOT_KAFKA)
    return CheckAnswer("ok", "empty, null and repeated ones were read back in order")


def _tombstones(scratch: Scratch) -> CheckAnswer:
    value = _record(scratch, _TOMBSTONE).value()
    if value is not None:
        return CheckAnswer("not supported", f"a record without a value was read with {value!r}", _NOT_KAFKA)
    return CheckAnswer("ok", "a record without a value was read back")


def _transaction_log(scratch: Scratch) -> CheckAnswer:
    ask = f"ask the operator of the brokers: transaction.state.log.replication.factor = {_REPLICAS}, transaction.state.log.min.isr = 2"
    try:
        found = known_topics(scratch.admin, [_TRANSACTION_LOG], scratch.timeout_s, scratch.give_up)
    except KafkaException as error:
        if error.args[0].code() not in UNAUTHORISED:
            raise
        found = {}
    if _TRANSACTION_LOG not in found:
        return CheckAnswer("warning", f"Kafka does not show {_TRANSACTION_LOG} to this user", ask)
    replicas = min(len(partition.replicas) for partition in found[_TRANSACTION_LOG].partitions)
    if replicas < _REPLICAS:
        return CheckAnswer(
            "warning",
            f"{_TRANSACTION_LOG} has {replicas} replica{'s' * (replicas != 1)}: a lost disk loses the ends of transactions",
            f"{ask}; for a log that exists, kafka-reassign-partitions.sh",
        )
    return CheckAnswer("ok", f"{_TRANSACTION_LOG} has {replicas} replicas")


CHECKS: tuple[ServerCheck[Scratch], ...] = (
    ServerCheck("topic ids", "to notice a topic that was made again", _topic_ids),
    ServerCheck("compaction", "the lanes' positions", _compaction),
    ServerCheck("transaction timeout", "the lanes' transactions", _transaction_timeout),
    ServerCheck("transactions", "events and position in one commit", _transactions),
    ServerCheck("fencing", "one writer of each lane", _fencing),
    ServerCheck("last stable offset", "to wait for open transactions", _last_stable_offset),
    ServerCheck("isolation", "read_committed consumers", _isolation),
    ServerCheck("timestamps", "outputs with times of their own", _timestamps),
    ServerCheck("headers", "outbox-id", _headers),
    ServerCheck("tombstones", "outputs without a value", _tombstones),
    ServerCheck("transaction log", "commits that survive a broker", _transaction_log),
)


def topic_checks(settings: Settings) -> list[ServerCheck[Scratch]]:
    """Return a check for each output topic that the settings name, except patterns, and for each input topic."""
    outputs = [name for name in settings.publisher.output_topics if not name.endswith("*")]
    return [
        *(ServerCheck(f"output {name}", "sending", _output_topic(name)) for name in outputs),
        *(ServerCheck(f"input {name}", "the job", _input_topic(name)) for name in settings.source.topics),
    ]


def _output_topic(name: str) -> Callable[[Scratch], CheckAnswer]:
    def ask(scratch: Scratch) -> CheckAnswer:
        try:
            topic = scratch.topics.describe([name])[name]
        except TopicMissingError:
            if scratch.settings.publisher.create_topics:
                return CheckAnswer("ok", "does not exist, and will be made")
            raise
        if not _may(scratch, name, AclOperation.WRITE):
            return CheckAnswer("failed", f"Write on topic {name!r} is needed", _GRANT)
        return CheckAnswer("ok", f"{topic.partitions} partitions; may be written")

    return ask


def _input_topic(name: str) -> Callable[[Scratch], CheckAnswer]:
    """Return the check of an input topic. A problem is only a warning: the job may run as another user, and checks its topics at its
    start."""

    def ask(scratch: Scratch) -> CheckAnswer:
        as_job = "if the job has another user, run this with its [kafka] settings"
        try:
            found = known_topics(scratch.admin, [name], scratch.timeout_s, scratch.give_up)
            if name not in found:
                return CheckAnswer("warning", "does not exist", "make it, or correct [source] topics")
            policy = str(
                topic_configs(scratch.admin, [name], scratch.timeout_s, scratch.give_up)[name][
                    "cleanup.policy"
                ].value
            )
        except KafkaException as error:
            if error.args[0].code() not in UNAUTHORISED:
                raise
            return CheckAnswer("warning", str(error.args[0].str()), f"{_GRANT}; {as_job}")
        if "compact" in policy:
            return CheckAnswer(
                "warning", f"cleanup.policy={policy}: the job refuses it", "set cleanup.policy=delete on it"
            )
        if not _may(scratch, name, AclOperation.READ):
            return CheckAnswer("warning", f"Read on topic {name!r} is needed", f"{_GRANT}; {as_job}")
        return CheckAnswer("ok", f"{len(found[name].partitions)} partitions; may be read")

    return ask


def explain(error: Exception) -> CheckAnswer | None:
    """Return the result of a check that failed with this error; None if the error is a bug."""
    match error:
        case StoppedError():
            return CheckAnswer("failed", error.reason, str(error).removeprefix(f"{error.reason}: "))
        case KafkaException():
            told = error.args[0]
            if told.code() in _UNSUPPORTED:
                return CheckAnswer("not supported", str(told.str()), _NOT_KAFKA)
            remedy = _GRANT if told.code() in UNAUTHORISED else "see the log of the brokers"
            return CheckAnswer("failed", str(told.str()), remedy)
        case NotTriedError():
            return CheckAnswer("failed", str(error), "see the checks above")
        case _:
            return None


class NotTriedError(Exception):
    """The record that a check wants to read was never committed."""


def _record(scratch: Scratch, key: bytes) -> Any:
    """Return the committed record with this key. Raises NotTriedError, KafkaException."""
    found = [message for message in scratch.read() if message.key() == key]
    if not found:
        raise NotTriedError("there is no committed record to check")
    return found[0]


def _may(scratch: Scratch, name: str, operation: AclOperation) -> bool:
    """Whether Kafka allows this user the operation. If the broker does not tell, the right is assumed. Raises KafkaException."""
    wanted = TopicCollection([name])
    answers = scratch.admin.answers_within(
        scratch.timeout_s,
        lambda client, wait_s: client.describe_topics(
            wanted, include_authorized_operations=True, request_timeout=wait_s
        ),
        scratch.give_up,
    )
    described: TopicDescription = answers[name].result()
    return not described.authorized_operations or operation in described.authorized_operations


def _listed(keys: Sequence[bytes | None]) -> str:
    return ", ".join((key or b"no key").decode("utf-8", "replace") for key in keys) or "none"
