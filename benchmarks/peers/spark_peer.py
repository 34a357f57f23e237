"""Spark's own stateful operator in Python, with its Kafka sink: at least once, since that sink knows no transactions."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from benchmarks.peers.contender import Work
from benchmarks.peers.kafka_options import CONSUMER, PRODUCER, prefixed
from benchmarks.peers.process import SingleProcess, started

PART = "job"
_CHECKOUT = Path(__file__).resolve().parents[2]

# Checkpoint manager, sockets, Arrow batches and no batches without data made this project's own job faster, too.
_SPARK = {
    "spark.driver.memory": "2g",
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.execution.arrow.maxRecordsPerBatch": "200000",
    "spark.python.unix.domain.socket.enabled": "true",
}
_ROCKSDB = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
_SOURCE = {
    "startingOffsets": "earliest",
    "failOnDataLoss": "true",
    # As this project's job is measured.
    "maxOffsetsPerTrigger": "600000",
    **prefixed("kafka.", CONSUMER),
}


@dataclass(frozen=True)
class SparkStateful:
    """One setting of the job."""

    state: Literal["memory", "rocksdb"] = "memory"
    is_exactly_once: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """As it stands in tables."""
        return f"Spark applyInPandasWithState, {'RocksDB' if self.state == 'rocksdb' else 'memory'} (at least once)"

    @contextmanager
    def running(self, work: Work) -> Iterator[SingleProcess]:
        """Run it with the interpreter and the libraries of this process."""
        file = work.folder / "spark.json"
        file.write_text(json.dumps(self._settings(work)), "utf-8")
        command = [sys.executable, "-m", "benchmarks.peers.spark_stateful", str(file)]
        environment = {"PYTHONPATH": str(_CHECKOUT), "PYSPARK_PYTHON": sys.executable}
        with started(SingleProcess(PART, lambda: command, work.folder / "spark.log", environment)) as process:
            yield process

    def _settings(self, work: Work) -> dict[str, object]:
        bootstrap = {"kafka.bootstrap.servers": work.bootstrap_servers}
        spark = _SPARK | (_ROCKSDB if self.state == "rocksdb" else {})
        return {
            "master": f"local[{work.parallelism}]",
            "spark": spark
            | {"spark.sql.shuffle.partitions": str(work.parallelism), "spark.local.dir": str(work.folder)},
            "source": _SOURCE | bootstrap | {"subscribe": work.input_topic},
            "sink": prefixed("kafka.", PRODUCER)
            | bootstrap
            | {"topic": work.output_topic, "checkpointLocation": str(work.folder / "checkpoint")},
        }
