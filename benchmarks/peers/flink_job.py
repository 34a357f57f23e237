"""Apache Flink: a job of our own in Java (flink/), in one JVM with a mini cluster, with Flink's exactly-once Kafka sink."""

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
_PROJECT = Path(__file__).parent / "flink"
_MAIN = "peers.SessionJob"
_CHECKPOINTS = "checkpoints"

_JVM = [
    "-Xms2g",
    "-Xmx2g",
    # Less CPU than G1 at about the same rate: 20.5 against 24.5 s for 60,000 sessions.
    "-XX:+UseParallelGC",
    "-XX:MaxDirectMemorySize=1g",
    *(
        f"--add-opens=java.base/{package}=ALL-UNNAMED"
        for package in (
            "java.lang",
            "java.net",
            "java.io",
            "java.nio",
            "java.util",
            "java.util.concurrent",
            "sun.nio.ch",
        )
    ),
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss.SSS",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.log.org.apache.flink.runtime.checkpoint.CheckpointCoordinator=info",
    "-Dorg.slf4j.simpleLogger.log.org.apache.flink.runtime.executiongraph.ExecutionGraph=info",
]
_FLINK = {
    "execution.target": "local",
    "execution.attached": "true",
    # Assembler and sink are one chain: nothing is copied between them.
    "pipeline.object-reuse": "true",
    # Refuses Kryo, which would be slower than Flink's own serializers.
    "pipeline.generic-types": "false",
    # The default, 100 ms, would be part of every latency; under load buffers are full before that.
    "execution.buffer-timeout.interval": "10 ms",
    # Twice the local default.
    "taskmanager.memory.network.min": "128 mb",
    "taskmanager.memory.network.max": "128 mb",
    # RocksDB's cache and write buffers, far above the open state (some 30 MB in the checkpoints).
    "taskmanager.memory.managed.size": "768 mb",
    "execution.checkpointing.mode": "EXACTLY_ONCE",
    # RocksDB writes only what is new.
    "execution.checkpointing.incremental": "true",
    # A kill leaves the checkpoint. The job that continues owns it, so its first checkpoint need not be a full one.
    "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
    "execution.state-recovery.claim-mode": "CLAIM",
    # A failure is tried again, for ever.
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "2147483647",
    "restart-strategy.fixed-delay.delay": "1 s",
}


@dataclass(frozen=True)
class Flink:
    """One setting of the job."""

    state: Literal["hashmap", "rocksdb"] = "hashmap"
    checkpoint_ms: int = 1_000
    """Outputs become visible with a checkpoint: the interval is the latency. None took longer than 0.7 s under full load."""
    transaction_timeout_s: int = 900
    """The broker's default maximum: a longer outage loses what was prepared. Brokers refuse the sink's own default, an hour."""

    @property
    def name(self) -> str:
        """As it stands in tables."""
        backend = {"hashmap": "heap", "rocksdb": "RocksDB"}[self.state]
        return f"Flink, {backend}, {self.checkpoint_ms / 1000:g} s"

    @contextmanager
    def running(self, work: Work) -> Iterator[SingleProcess]:
        """Build the job where that was not done yet, and run it."""
        build = built(_PROJECT)
        prefix = f"flink-{uuid4().hex[:12]}"

        def command() -> list[str]:
            file = write_properties(work.folder / "flink.properties", self._settings(work, prefix))
            return build.command(_JVM, _MAIN, str(file))

        with started(SingleProcess(PART, command, work.folder / "flink.log")) as process:
            yield process

    def _settings(self, work: Work, prefix: str) -> dict[str, str]:
        checkpoints = work.folder / _CHECKPOINTS
        flink = _FLINK | {
            "parallelism.default": str(work.parallelism),
            "taskmanager.numberOfTaskSlots": str(work.parallelism),
            "state.backend.type": self.state,
            "execution.checkpointing.interval": f"{self.checkpoint_ms} ms",
            "execution.checkpointing.dir": checkpoints.as_uri(),
            "io.tmp.dirs": str(work.folder),
        }
        if (latest := latest_checkpoint(checkpoints)) is not None:
            flink["execution.state-recovery.path"] = latest.as_uri()
        source = {**CONSUMER, "group.id": prefix}
        sink = {**PRODUCER, "transaction.timeout.ms": str(self.transaction_timeout_s * 1000)}
        return {
            "job.bootstrap-servers": work.bootstrap_servers,
            "job.input-topic": work.input_topic,
            "job.output-topic": work.output_topic,
            "job.transactional-id-prefix": prefix,
            # The connector's default: a new transactional id for each checkpoint and subtask.
            "job.transaction-naming": "INCREMENTING",
            **prefixed("flink.", flink),
            **prefixed("source.", source),
            **prefixed("sink.", sink),
        }


def latest_checkpoint(folder: Path) -> Path | None:
    """The newest complete checkpoint below the folder, of whichever life of the job: what a high-availability store would name."""
    complete = [(meta.stat().st_mtime_ns, meta.parent) for meta in folder.glob("*/chk-*/_metadata")]
    return max(complete)[1] if complete else None
