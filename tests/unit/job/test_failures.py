"""What ends an attempt says what to do, with an exit code for its cause, whether it passes by itself, and without payloads."""

import inspect
import re
from collections import defaultdict
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import KafkaError, KafkaException

import db.errors
import spark_job.ivy
from db.errors import ContinuityError, FencedError, OutboxError, SchemaError, SettingsError, UnavailableError
from spark_job import failures
from spark_job.failures import (
    BucketTooLargeError,
    CheckpointUnusableError,
    DiskFullError,
    JobFailedError,
    OutOfMemoryError,
    RefusedError,
    SparkLostError,
    TransformFailedError,
    explain,
    explained,
    passes_by_itself,
)

OPERATIONS = Path(__file__).parents[3] / "docs" / "operations.md"
DIED = "Job aborted due to stage failure: Task 0 in stage 8.0 failed 1 times\nCaused by: {}\n\tat org.apache.spark.X.y(X.scala:1)"


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (FencedError("mine"), FencedError, "mine"),
        (psycopg.OperationalError("server closed"), UnavailableError, "server closed"),
        (psycopg.InterfaceError("the connection is closed"), UnavailableError, "connection is closed"),
        (
            psycopg.errors.IdleInTransactionSessionTimeout("idle"),
            UnavailableError,
            "idle_in_transaction_timeout_ms",
        ),
        (psycopg.errors.DiskFull("no space"), UnavailableError, "the disk of Postgres is full: no space"),
        (psycopg.errors.LockNotAvailable("canceled"), UnavailableError, "lock_timeout_ms"),
        # a connection that led to a standby during a failover
        (
            psycopg.errors.ReadOnlySqlTransaction("read-only"),
            UnavailableError,
            "target_session_attrs=read-write",
        ),
        (psycopg.errors.AdminShutdown("terminating"), UnavailableError, "terminating"),
        (psycopg.errors.DeadlockDetected("deadlock"), UnavailableError, "deadlock"),
        (psycopg.errors.CheckViolation("violates\nDETAIL:  row contains (secret)"), RefusedError, "violates"),
        (psycopg.errors.InsufficientPrivilege("denied for table batch"), RefusedError, "denied for table"),
        (psycopg.errors.ProgramLimitExceeded("row is too big"), RefusedError, "row is too big"),
        (psycopg.errors.DataCorrupted("invalid page"), RefusedError, "invalid page"),
        (KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN)), UnavailableError, "Kafka: "),
        (RuntimeError("... Some data may have been lost because ..."), ContinuityError, "deleted offsets"),
        (
            RuntimeError(DIED.format("spark_job.sessions.errors.BucketTooLarge: the 5 open sessions")),
            BucketTooLargeError,
            "the 5 open sessions",
        ),
        (
            RuntimeError(DIED.format("spark_job.worker.TransformStoppedError: session k")),
            TransformFailedError,
            "session k",
        ),
        (
            RuntimeError(DIED.format("db.errors.SettingsError: importing m failed")),
            SettingsError,
            "importing m",
        ),
        (
            RuntimeError(DIED.format("java.lang.OutOfMemoryError: Java heap space")),
            OutOfMemoryError,
            "heap space",
        ),
        (
            RuntimeError("bigger than spark.driver.maxResultSize (1024.0 MiB)"),
            OutOfMemoryError,
            "driver_memory",
        ),
        (
            RuntimeError(DIED.format("java.io.IOException: No space left on device")),
            DiskFullError,
            "No space left",
        ),
        (
            RuntimeError(
                DIED.format("org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node")
            ),
            UnavailableError,
            "Timed out waiting for a node",
        ),
        (
            RuntimeError(
                DIED.format(
                    "java.net.ConnectException: refused\n\tat x.MicroBatchExecution.initializeExecution("
                )
            ),
            UnavailableError,
            "file system of the checkpoint",
        ),
        (
            RuntimeError("[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update"),
            JobFailedError,
            "another query still writes",
        ),
        (KeyError(5), JobFailedError, "KeyError: 5"),
    ],
)
def test_every_cause_has_its_kind_and_its_words(
    error: BaseException, kind: type[OutboxError], text: str
) -> None:
    explanation = explain(error)
    assert type(explanation) is kind
    assert text in str(explanation)
    assert "secret" not in str(explanation)
    assert "\tat " not in str(explanation)


# What Spark 4.2.0 was seen to say after each damage: the line that names it, and what stands before the next stack frame.
# tests/acceptance/test_damaged_checkpoint.py does the damages to a real checkpoint.
_RUN = "\tat org.apache.spark.sql.execution.streaming."
DAMAGES = {
    "state deleted": "[STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY] Cannot restart streaming query with stateful operators",
    "state of a partition deleted": (
        "Caused by: org.apache.spark.SparkException: [CANNOT_LOAD_STATE_STORE.CANNOT_READ_DELTA_FILE_NOT_EXISTS] An error occurred"
    ),
    "state files garbled": "Caused by: org.apache.spark.SparkException: [CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred",
    "state of another version": "UnknownStateVersion: the bucket's state begins with b'x'",
    "state schema garbled": (
        f"Caused by: java.io.EOFException\n{_RUN}state.StateSchemaCompatibilityChecker$.readSchemaFile(X.scala)"
    ),
    "newest commit garbled": (
        "Caused by: java.lang.IllegalStateException: Failed to read log file commits/12. [MALFORMED_LOG_FILE] Log file was malformed\n"
        f"{_RUN}checkpointing.HDFSMetadataLog.getExistingBatch(HDFSMetadataLog.scala:252)"
    ),
    "newest commit empty": (
        "Caused by: java.lang.IllegalStateException: Incomplete log file in the offset commit log\n"
        f"{_RUN}checkpointing.HDFSMetadataLog.getExistingBatch(HDFSMetadataLog.scala:252)"
    ),
    "newest offsets cut short": (
        "Caused by: com.fasterxml.jackson.core.io.JsonEOFException: Unexpected end-of-input in field name\n"
        f"{_RUN}checkpointing.HDFSMetadataLog.getExistingBatch(HDFSMetadataLog.scala:252)"
    ),
    "newest offsets not the source's": (
        'Caused by: java.lang.IllegalArgumentException: Expected e.g. {"topicA":{"0":23,"1":-1}}, got {not json\n'
        "\tat org.apache.spark.sql.kafka010.KafkaMicroBatchStream.deserializeOffset(KafkaMicroBatchStream.scala:161)"
    ),
    "offsets before the newest deleted": (
        "Caused by: java.lang.IllegalStateException: batch 11 doesn't exist\n"
        f"{_RUN}runtime.MicroBatchExecution.initializeExecution(MicroBatchExecution.scala:548)"
    ),
    "offsets deleted": (
        "Caused by: java.lang.AssertionError: assertion failed\n"
        f"{_RUN}runtime.MicroBatchExecution.initializeExecution(MicroBatchExecution.scala:525)"
    ),
    "metadata deleted": "[STREAMING_CHECKPOINT_MISSING_METADATA_FILE] Checkpoint location x is in an inconsistent state",
    "metadata garbled": (
        ": com.fasterxml.jackson.core.JsonParseException: Unrecognized token 'garbage'\n"
        f"{_RUN}runtime.StreamMetadata$.read(StreamMetadata.scala:60)"
    ),
}


@pytest.mark.parametrize("message", DAMAGES.values(), ids=DAMAGES)
def test_a_checkpoint_that_spark_cannot_use_is_told_from_other_failures_and_passes(message: str) -> None:
    text = f"Exception thrown in awaitResult:\n\tat org.apache.spark.util.X.y(X.scala:1)\n{message}\n\tat java.base/z"
    explanation = explain(RuntimeError(text))
    assert type(explanation) is CheckpointUnusableError
    assert message.splitlines()[0] in str(explanation)
    assert passes_by_itself(explanation)


@pytest.mark.parametrize(
    ("kind", "passes"),
    [
        (UnavailableError, True),
        (JobFailedError, True),
        (DiskFullError, True),
        (SparkLostError, True),
        (CheckpointUnusableError, True),
        (SettingsError, False),
        (SchemaError, False),
        (FencedError, False),
        (ContinuityError, False),
        (spark_job.ivy.JarsError, False),
        (TransformFailedError, False),
        (BucketTooLargeError, False),
        (OutOfMemoryError, False),
        (RefusedError, False),
    ],
)
def test_only_what_passes_by_itself_is_tried_again(kind: type[OutboxError], passes: bool) -> None:
    assert passes_by_itself(kind("x")) == passes
    assert ("yes" if passes else "no") in documented()[kind.exit_code]


def test_every_cause_with_a_remedy_of_its_own_has_an_exit_code_of_its_own_and_is_documented() -> None:
    kinds = [
        kind
        for module in (db.errors, failures, spark_job.ivy)
        for kind in vars(module).values()
        if inspect.isclass(kind) and issubclass(kind, OutboxError) and kind.__module__ == module.__name__
    ]
    codes = {kind.exit_code: kind for kind in kinds if kind is not CheckpointUnusableError}
    assert len(codes) == len(kinds) - 1
    assert set(codes) == set(documented())


def test_a_servers_error_outside_the_query_is_explained_too() -> None:
    with pytest.raises(UnavailableError, match="gone"), explained():
        raise psycopg.OperationalError("gone")


def test_an_error_of_the_operating_system_is_not_taken_for_a_lost_jvm() -> None:
    with pytest.raises(PermissionError), explained():
        raise PermissionError("mine")


def documented() -> dict[int, set[str]]:
    """{exit code: whether it is tried again, of each of its causes} of the table in docs/operations.md."""
    found: dict[int, set[str]] = defaultdict(set)
    for line in OPERATIONS.read_text("utf-8").splitlines():
        if row := re.fullmatch(r"\| ([1-9]\d*) \|[^|]*\| (yes|no) \|[^|]*\|", line):
            found[int(row[1])].add(row[2])
    return found
