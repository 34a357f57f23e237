"""An output topic that Kafka compacts: what was superseded is no loss, and nobody puts old values on top of new ones unasked."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from devstack.kafka import KafkaServer
from devstack.topics import create_topics
from service.errors import SettingsError
from service.settings import Settings
from tests.support.outbox.audits import NEVER_SENT, damage, examples, failed, fill, row, run_audit
from tests.support.outbox.batches import Outbox, Session
from tests.support.outbox.deliveries import deliver
from tests.support.outbox.replays import replay, replayed
from tests.support.processes.publishers import settings_for
from tests.support.waiting import wait_until
from tests.support.watching import Watcher

# A segment is compacted once a later one is begun.
COMPACTED_AT_ONCE = {
    "cleanup.policy": "compact",
    "segment.ms": "50",
    "min.cleanable.dirty.ratio": "0",
    "max.compaction.lag.ms": "100",
    "delete.retention.ms": "0",
}


@pytest.fixture
def topic(kafka: KafkaServer, topic_prefix: str) -> str:
    name = f"{topic_prefix}states"
    create_topics(kafka.bootstrap_servers, {name: (1, COMPACTED_AT_ONCE)})
    return name


def state(batch: int) -> dict[str, Sequence[Session]]:
    """Each of five keys has one output, its state after this batch."""
    return {f"k{key}": [Session([b"state %d" % batch], end=batch * 100 + key)] for key in range(5)}


def read_back(kafka: KafkaServer, topic: str) -> list[tuple[bytes, bytes | None]]:
    """What a consumer that begins now sees: key and value, in order."""
    with Watcher(kafka.bootstrap_servers, topic, tolerant=True) as watcher:
        watcher.wait_until_all_read()
    return [(event.key, event.value) for event in watcher.seen]


def fill_and_compact(outbox: Outbox, settings: Settings, kafka: KafkaServer) -> None:
    for batch in range(1, 6):
        outbox.batch(state(batch))
        deliver(settings)

    def without_the_first() -> bool:
        return all(value != b"state 1" for _, value in read_back(kafka, outbox.topic))

    wait_until(without_the_first, "the compaction of what was superseded", timeout_s=120)


def test_what_compaction_removed_is_not_decidable_and_no_replay_is_named_but_a_lost_newest_value_is_found(
    outbox: Outbox, settings: Settings, kafka: KafkaServer, tmp_path: Path
) -> None:
    fill_and_compact(outbox, settings, kafka)
    left = len(read_back(kafka, outbox.topic))
    report = run_audit(settings, tmp_path, kafka=True)
    assert (failed(report), report.mend) == ({}, [])
    undecided = next(check for check in report.checks if check.name == "not_decidable")
    assert undecided.count == 25 - left > 0
    damage(settings, row(NEVER_SENT, 5, "k3"))
    report = run_audit(settings, tmp_path, kafka=True)
    assert failed(report) == {"batch_counts": 1, "delivery_counts": 1, "lost": 1}
    assert "(batch 5, session 'k3'" in examples(report, "lost")
    assert report.mend == []


def test_a_replay_to_a_compacted_topic_asks_first_whatever_yes_says(
    outbox: Outbox, settings: Settings, kafka: KafkaServer
) -> None:
    outbox.batch(state(1))
    outbox.batch(state(2))
    deliver(settings)
    asked = replay(settings, "start", "--to-batch", "1", "--yes")
    assert isinstance(asked.exception, SettingsError)
    assert f"compacted: {outbox.topic}" in str(asked.exception)
    assert "say --accept-compacted" in str(asked.exception)
    assert dict(read_back(kafka, outbox.topic)) == {b"k%d" % key: b"state 2" for key in range(5)}
    replayed(settings, "start", "--to-batch", "1", "--yes", "--accept-compacted")
    assert dict(read_back(kafka, outbox.topic)) == {b"k%d" % key: b"state 1" for key in range(5)}


def test_the_replay_that_is_named_for_another_topic_leaves_compacted_ones_alone(
    outbox: Outbox, kafka: KafkaServer, topic_prefix: str, tmp_path: Path
) -> None:
    plain = f"{topic_prefix}plain"
    create_topics(kafka.bootstrap_servers, {plain: (1, {})})
    settings = settings_for(outbox.dsn, kafka.bootstrap_servers)
    fill(outbox)
    outbox.batch({"k0001": [Session([b"a", b"b"], end=7, topics=[outbox.topic, plain])]})
    deliver(settings)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.delete_topics([plain], operation_timeout=60)[plain].result(60)
    report = run_audit(settings, tmp_path, kafka=True)
    assert failed(report) == {"topics": 1, "lost": 1}
    assert f"--topic {plain} --yes" in report.mend[0]
