"""Spark's checkpoint directory, read as far as the outbox must compare it with its ledger.

Through Hadoop's FileSystem, as Spark itself writes it, so every URI that Spark knows works. Layout: `offsets/<n>` is written before batch n
runs, `commits/<n>` after it (Spark, `OffsetSeqLog` and `CommitLog`).
"""

import re
from collections.abc import Collection, Mapping
from typing import Any
from uuid import UUID

import orjson
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from db.errors import OutboxError, UnavailableError
from spark_job.directory_fit import DirectoryState
from spark_job.failures import CheckpointUnusableError
from spark_job.offsets import Offsets, TopicPartition

_DIRECTORY = re.compile(r"gen-(\d+)-[0-9a-f]+")  # not what somebody has put aside as gen-2-….old


class CheckpointDirectory:
    """One generation's directory."""

    def __init__(self, spark: SparkSession, path: str, topic_ids: Mapping[str, str]) -> None:
        """`topic_ids`: {topic: topic id} of the generation, to translate Spark's offsets, which name topics."""
        jvm: Any = spark._jvm
        self.path = path
        self._topic_ids = topic_ids
        self._jvm = jvm
        self._root = jvm.org.apache.hadoop.fs.Path(path)
        self._files = self._root.getFileSystem(spark._jsc.hadoopConfiguration())

    def mark(self, outbox_uuid: UUID) -> None:
        """Leave the outbox's name in the directory: one that its ledger does not know later shows that the database lost its end."""
        marker = self._jvm.org.apache.hadoop.fs.Path(self._root, _marker(outbox_uuid))
        try:
            if not self._files.exists(marker):
                self._files.create(marker, True).close()
        except Py4JJavaError as error:
            raise _unreadable(f"{self.path}/{_marker(outbox_uuid)}", error) from error

    def is_marked(self, outbox_uuid: UUID) -> bool:
        """Tell whether `mark` was called on this directory."""
        marker = self._jvm.org.apache.hadoop.fs.Path(self._root, _marker(outbox_uuid))
        try:
            return bool(self._files.exists(marker))
        except Py4JJavaError as error:
            raise _unreadable(f"{self.path}/{_marker(outbox_uuid)}", error) from error

    @property
    def uri(self) -> str:
        """The directory as an absolute URI."""
        return str(self._files.makeQualified(self._root).toString())

    def state(self) -> DirectoryState:
        """List both logs. Raises CheckpointUnusableError when the directory cannot be read."""
        return DirectoryState(self._newest("offsets"), self._newest("commits"))

    def end_offsets(self, batch: int) -> Offsets:
        """Return the end of `batch` out of the offset log.

        Raises CheckpointUnusableError when the entry is missing or unreadable.
        """
        name = f"{self.path}/offsets/{batch}"
        try:
            stream = self._files.open(self._jvm.org.apache.hadoop.fs.Path(self._root, f"offsets/{batch}"))
            text = self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
            stream.close()
        except Py4JJavaError as error:
            raise _unreadable(name, error) from error
        return parse_offsets(str(text), name, self._topic_ids)

    def _newest(self, log: str) -> int | None:
        folder = self._jvm.org.apache.hadoop.fs.Path(self._root, log)
        try:
            if not self._files.exists(folder):
                return None
            names = [status.getPath().getName() for status in self._files.listStatus(folder)]
        except Py4JJavaError as error:
            raise _unreadable(f"{self.path}/{log}", error) from error
        return max((int(name) for name in names if name.isdigit()), default=None)


def unknown_directories(
    spark: SparkSession, root: str, known: Collection[str], above: int, outbox_uuid: UUID
) -> dict[int, str]:
    """Return {generation: path} of this outbox's directories below `root` that its ledger does not know.

    `known`: names of those it knows; `above`: only generations with a greater number. Raises UnavailableError when `root` cannot be read.
    """
    jvm: Any = spark._jvm
    folder = jvm.org.apache.hadoop.fs.Path(root)
    found: dict[int, str] = {}
    try:
        files = folder.getFileSystem(spark._jsc.hadoopConfiguration())
        for status in files.listStatus(folder) if files.exists(folder) else ():
            path = status.getPath()
            name = _DIRECTORY.fullmatch(path.getName())
            if name is None or name[0] in known or int(name[1]) <= above:
                continue
            if files.exists(jvm.org.apache.hadoop.fs.Path(path, _marker(outbox_uuid))):
                found[int(name[1])] = str(path.toString())
    except Py4JJavaError as error:
        raise _unreadable(root, error) from error
    return found


def _marker(outbox_uuid: UUID) -> str:
    return f"outbox-{outbox_uuid}"


def _unreadable(name: str, error: Py4JJavaError) -> OutboxError:
    """A file that is missing or damaged is a checkpoint of no use; a file system that fails may be back at the next start."""
    name_of_error = error.java_exception.getClass().getName()
    damaged = any(sign in name_of_error for sign in ("FileNotFound", "ChecksumException", "EOFException"))
    kind = CheckpointUnusableError if damaged else UnavailableError
    return kind(f"checkpoint: {name} cannot be read: {error.java_exception.getMessage()}")


def parse_offsets(text: str, name: str, topic_ids: Mapping[str, str]) -> Offsets:
    """Read an entry of Spark's offset log: a version line, a metadata line, then one line for the one source.

    Raises CheckpointUnusableError when it is not that.
    """
    try:
        version, _, offsets = text.strip().split("\n")
        if version != "v1":
            raise ValueError(f"version {version!r}")
        return Offsets(
            {
                TopicPartition(topic_ids[topic], int(partition)): offset
                for topic, partitions in orjson.loads(offsets).items()
                for partition, offset in partitions.items()
            }
        )
    except (ValueError, KeyError, AttributeError) as error:
        raise CheckpointUnusableError(
            f"{name} is not an offset log entry of this job's one Kafka source: {error!r}"
        ) from error
