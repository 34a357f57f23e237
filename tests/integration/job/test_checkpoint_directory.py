"""A checkpoint's directory, read through Hadoop's own file system as Spark writes it."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from db.errors import ContinuityError
from db.settings import JobSettings
from spark_job.checkpoint import CheckpointDirectory, unknown_directories
from spark_job.directory_fit import DirectoryState
from spark_job.offsets import Offsets, TopicPartition
from spark_job.spark import start_session

ENTRY = 'v1\n{"batchWatermarkMs":0}\n{"input":{"0":7,"1":9}}'


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    scratch = tmp_path_factory.mktemp("spark")
    session = start_session(
        JobSettings(master="local[1]", driver_memory="512m", spark_options={"spark.local.dir": str(scratch)})
    )
    yield session
    session.stop()


def write(spark: SparkSession, file: Path, text: str) -> None:
    """As Spark writes: with a checksum file beside it."""
    jvm = spark._jvm
    assert jvm is not None
    path = jvm.org.apache.hadoop.fs.Path(str(file))
    stream = path.getFileSystem(spark._jsc.hadoopConfiguration()).create(path, True)
    stream.write(bytearray(text.encode()))
    stream.close()


def test_both_logs_are_read_and_what_is_missing_or_damaged_is_a_lost_checkpoint(
    spark: SparkSession, tmp_path: Path
) -> None:
    directory = CheckpointDirectory(spark, str(tmp_path / "gen-1-ab"), {"input": "id"})
    assert directory.state() == DirectoryState(None, None)
    for number in (9, 10, 11):
        write(spark, tmp_path / f"gen-1-ab/offsets/{number}", ENTRY)
    write(spark, tmp_path / "gen-1-ab/commits/10", "v1\n{}")
    assert directory.state() == DirectoryState(11, 10)
    assert directory.end_offsets(11) == Offsets({TopicPartition("id", 0): 7, TopicPartition("id", 1): 9})
    with pytest.raises(ContinuityError, match="offsets/8 cannot be read"):
        directory.end_offsets(8)

    damaged = tmp_path / "gen-1-ab/offsets/11"
    damaged.write_text(ENTRY.replace("9", "8"))
    assert damaged.with_name(".11.crc").exists()
    with pytest.raises(ContinuityError, match="offsets/11 cannot be read"):
        directory.end_offsets(11)
    damaged.with_name(".11.crc").unlink()
    damaged.write_text("garbled")
    with pytest.raises(ContinuityError, match="offsets/11 is not an offset log entry"):
        directory.end_offsets(11)


def test_only_a_newer_directory_of_this_outbox_under_its_own_name_is_unknown(
    spark: SparkSession, tmp_path: Path
) -> None:
    outbox, other = uuid.uuid4(), uuid.uuid4()
    for name, owner in (
        ("gen-1-aa", outbox),  # not above
        ("gen-2-bb", outbox),  # known
        ("gen-3-cc", other),
        ("gen-4-dd", outbox),
        ("gen-5-ee.old", outbox),  # put aside by somebody
    ):
        CheckpointDirectory(spark, str(tmp_path / name), {}).mark(owner)
    (tmp_path / "gen-6-ff").mkdir()
    found = unknown_directories(spark, str(tmp_path), {"gen-2-bb"}, 1, outbox)
    assert {number: Path(path).name for number, path in found.items()} == {4: "gen-4-dd"}
    assert unknown_directories(spark, str(tmp_path / "nowhere"), set(), 0, outbox) == {}
