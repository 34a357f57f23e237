"""Kafka Streams: a topology of our own in Java (streams/) in one JVM, exactly-once v2, state in RocksDB or in memory with a changelog."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from uuid import uuid4

from benchmarks.peers.contender import Work
from benchmarks.peers.java import built, write_properties
from benchmarks.peers.kafka_options import CONSUMER, PRODUCER, prefixed
from benchmarks.peers.process import SingleProcess, started

PART = "job"
_PROJECT = Path(__file__).parent / "streams"
_MAIN = "peers.StreamsSessions"

_JVM = [
    "-Xms2g",
    "-Xmx2g",
    "-XX:+UseParallelGC",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss.SSS",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.streams.KafkaStreams=info",
]
_STREAMS = {
    "processing.guarantee": "exactly_once_v2",
    "replication.factor": "1",
    "buffered.records.per.partition": "10000",
    "main.consumer.auto.offset.reset": "earliest",
    "main.consumer.session.timeout.ms": "10000",
    **prefixed("consumer.", CONSUMER),
    **prefixed("producer.", PRODUCER),
}


@dataclass(frozen=True)
class KafkaStreams:
    """One setting of the topology.

    Each event is an entry (session key, 0, offset): an append writes its bytes once to store and changelog, where one entry a session
    would be read and written again 102 times. No store cache: each key is written once and deleted once. A failed thread is replaced.
    """

    store: Literal["rocksdb", "memory"] = "rocksdb"
    commit_ms: int = 100
    """100 is Kafka Streams' own default where processing is exactly once; 1000 compares with Flink's checkpoints."""

    @property
    def name(self) -> str:
        """As it stands in tables."""
        store = {"rocksdb": "RocksDB", "memory": "memory"}[self.store]
        return f"Kafka Streams, {store}, {self.commit_ms / 1000:g} s"

    @contextmanager
    def running(self, work: Work) -> Iterator[SingleProcess]:
        """Build the topology where that was not done yet, and run it."""
        build = built(_PROJECT)
        application = f"streams-{uuid4().hex[:12]}"
        file = write_properties(work.folder / "streams.properties", self._settings(work, application))
        command = build.command(_JVM, _MAIN, str(file))
        with started(SingleProcess(PART, lambda: command, work.folder / "streams.log")) as process:
            yield process

    def _settings(self, work: Work, application: str) -> dict[str, str]:
        streams = _STREAMS | {
            "bootstrap.servers": work.bootstrap_servers,
            "application.id": application,
            "num.stream.threads": str(work.parallelism),
            "state.dir": str(work.folder / "state"),
            "commit.interval.ms": str(self.commit_ms),
            # A member that is killed and started again takes its partitions over at once, without a rebalance.
            "main.consumer.group.instance.id": "one",
        }
        return {
            "job.input-topic": work.input_topic,
            "job.output-topic": work.output_topic,
            "job.store": self.store,
            **prefixed("streams.", streams),
        }
