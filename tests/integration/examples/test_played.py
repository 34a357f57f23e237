"""What `--unless-played` promises: however often the loader was cut off, the topic has the sample once, in order."""

from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from devstack.kafka import KafkaServer
from devstack.topics import create_topics
from examples.clickstream.dataset import Click
from examples.clickstream.events import Record, from_clicks
from examples.clickstream.played import left_to_play
from examples.clickstream.producer import TopicWriter
from examples.clickstream.reading import ReadError, read_topic
from service.settings import KafkaSettings

_BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def sample() -> list[Record]:
    """Thirty sessions of five events that run at the same time."""
    clicks = [
        Click(
            session=f"s{number}",
            at=_BEGAN + timedelta(seconds=30 * step + number),
            user="u",
            platform="web",
            channel="direct",
            cohort="2026-01",
            lifecycle="new",
            page="home",
        )
        for step in range(3)
        for number in range(30)
    ]
    return list(from_clicks(clicks))


@pytest.fixture
def topic(kafka: KafkaServer, topic_prefix: str) -> str:
    """An empty topic of three partitions."""
    name = f"{topic_prefix}clicks"
    create_topics(kafka.bootstrap_servers, {name: (3, {})})
    return name


@pytest.fixture
def settings(kafka: KafkaServer) -> KafkaSettings:
    """The run's Kafka."""
    return KafkaSettings(bootstrap_servers=kafka.bootstrap_servers)


def test_what_was_cut_off_is_gone_on_with(settings: KafkaSettings, topic: str, sample: list[Record]) -> None:
    """At two places, and a last run that finds everything there."""
    assert left_to_play(settings, topic, sample) == sample
    for stop in (1, 67, len(sample)):
        left = left_to_play(settings, topic, sample)
        with TopicWriter(settings, topic) as writer:
            writer.write(left[: stop - (len(sample) - len(left))])
    assert left_to_play(settings, topic, sample) == []
    written: dict[bytes | None, list[bytes | None]] = {}
    for record in read_topic(settings, topic):
        written.setdefault(record.key, []).append(record.value)
    expected: dict[bytes | None, list[bytes | None]] = {}
    for key, value, _ in sample:
        expected.setdefault(key, []).append(value)
    assert written == expected


def test_a_topic_that_has_lost_its_beginning_is_refused(
    settings: KafkaSettings, topic: str, sample: list[Record]
) -> None:
    """What is missing cannot be told from what was deleted."""
    with TopicWriter(settings, topic) as writer:
        writer.write(sample[:67])
    first = read_topic(settings, topic)[0]
    admin = AdminClient(settings.client())
    (deleted,) = admin.delete_records([TopicPartition(topic, first.partition, 1)]).values()
    deleted.result(30)
    with pytest.raises(ReadError, match="67 of 150 records"):
        left_to_play(settings, topic, sample)
