"""Every peer on the JVM reads and writes Kafka with the same settings."""

from pathlib import Path

import pytest

from benchmarks.peers.contender import Work
from benchmarks.peers.flink_job import Flink
from benchmarks.peers.kafka_options import CONSUMER, PRODUCER, prefixed
from benchmarks.peers.spark_peer import SparkStateful
from benchmarks.peers.streams_job import KafkaStreams


@pytest.fixture
def work(tmp_path: Path) -> Work:
    """Nothing runs."""
    return Work("host:1", "in", "out", tmp_path)


def test_flink(work: Work) -> None:
    given = Flink()._settings(work, "x").items()
    assert prefixed("source.", CONSUMER).items() <= given
    assert prefixed("sink.", PRODUCER).items() <= given


def test_kafka_streams(work: Work) -> None:
    given = KafkaStreams()._settings(work, "x").items()
    assert prefixed("streams.consumer.", CONSUMER).items() <= given
    assert prefixed("streams.producer.", PRODUCER).items() <= given


def test_spark(work: Work) -> None:
    given = SparkStateful()._settings(work)
    source, sink = given["source"], given["sink"]
    assert isinstance(source, dict)
    assert isinstance(sink, dict)
    assert prefixed("kafka.", CONSUMER).items() <= source.items()
    assert prefixed("kafka.", PRODUCER).items() <= sink.items()
