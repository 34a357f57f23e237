"""Tombstones go to compacted topics of outputs, never to another outbox's progress topic."""

from uuid import uuid4

import pytest

from devstack.kafka import KafkaServer
from devstack.topics import create_topics
from service.settings import Settings
from tests.support.outbox.batches import Outbox, Session, simple
from tests.support.outbox.deliveries import deliver
from tests.support.processes.erasing import erase, erased
from tests.support.processes.publishers import settings_for
from tests.support.queries import query
from tests.support.reading import read_to_end
from tests.support.servers.topic_limits import set_config

KEY = "person-4711"


@pytest.fixture
def foreign(topic_prefix: str) -> str:
    """The name of a progress topic of an outbox with its own `[publisher] progress_topic`."""
    return f"{topic_prefix}positions-{uuid4()}"


def test_a_topic_whose_rows_are_parked_counts_as_never_delivered_to(
    outbox: Outbox, settings: Settings, kafka: KafkaServer, foreign: str
) -> None:
    create_topics(kafka.bootstrap_servers, {foreign: (1, {"cleanup.policy": "compact"})})
    outbox.batch(simple(1, 2) | {KEY: [Session([b"1", b"2"], 7, topics=[foreign, outbox.topic])]})
    deliver(settings)
    assert query(outbox.dsn, "SELECT session_key, reason FROM outbox.parked") == [(KEY, "invalid")]
    bound = "SELECT jsonb_object_keys(output_topic_ids) FROM outbox.identity"
    assert query(outbox.dsn, bound) == [(outbox.topic,)]
    refused = erase(settings, KEY, "--tombstones", foreign)
    assert f"has never delivered to topic '{foreign}'" in str(refused.exception)
    assert list(read_to_end(kafka.bootstrap_servers, foreign)) == []


def test_an_output_that_kafka_never_took_keeps_no_other_tombstone_back(
    outbox: Outbox, settings: Settings, kafka: KafkaServer, topic_prefix: str
) -> None:
    profiles = f"{topic_prefix}profiles"
    create_topics(kafka.bootstrap_servers, {profiles: (1, {"cleanup.policy": "compact"})})
    outbox.batch({KEY: [Session([b"1"], 6, topics=[profiles])], "other": [Session([b"1"], 7)]})
    unfit = Session([b"1", b"2"], 8, topics=[profiles] * 2, partitions=[99, 0], keys=[None, b"k" * 1_100_000])
    outbox.batch({KEY: [unfit]})
    deliver(settings)
    assert query(outbox.dsn, "SELECT reason FROM outbox.parked") == [("invalid",)]
    assert erased(settings, KEY, "--tombstones", profiles)["keys"][0]["tombstones"] == 1
    assert [message.value() for message in read_to_end(kafka.bootstrap_servers, profiles)] == [b"1", None]


def test_a_topic_that_was_compacted_later_takes_tombstones_if_a_person_has_listed_it(
    outbox: Outbox, settings: Settings, kafka: KafkaServer, foreign: str
) -> None:
    create_topics(kafka.bootstrap_servers, {foreign: (1, {})})
    outbox.batch(simple(1, 2) | {KEY: [Session([b"1"], 7, topics=[foreign])]})
    deliver(settings)
    set_config(kafka.bootstrap_servers, foreign, "cleanup.policy", "compact")
    refused = erase(settings, KEY, "--tombstones", foreign)
    assert "is called and compacted like the progress topic of an outbox" in str(refused.exception)
    listed = settings_for(
        outbox.dsn, kafka.bootstrap_servers, output_topics=(outbox.topic, f"{foreign[:-30]}*")
    )
    assert erased(listed, KEY, "--tombstones", foreign)["keys"][0]["tombstones"] == 1
    assert [message.value() for message in read_to_end(kafka.bootstrap_servers, foreign)] == [b"1", None]
