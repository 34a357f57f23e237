"""From what ended an attempt to an error that says what happened and what mends it, and whether it passes by itself.

Spark hands its failures on as text: message, then the Java stack. So a cause is known by a sign in that text. The signs of a damaged
checkpoint were found by damaging one (tests/acceptance/test_damaged_checkpoint.py does it again).
"""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from confluent_kafka import KafkaException
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from db.errors import ContinuityError, OutboxError, SettingsError, UnavailableError
from spark_job import jvm


class CheckpointUnusableError(ContinuityError):
    """Spark cannot go on from its checkpoint. The ledger can: the next attempt opens a new generation."""


class JobFailedError(OutboxError):
    """The Spark query failed for a reason that this job does not know."""

    exit_code = 10


class TransformFailedError(OutboxError):
    """The transform raised and `[transform] on_error` is "stop"."""

    exit_code = 11


class BucketTooLargeError(OutboxError):
    """The open sessions of one bucket outgrew their limit."""

    exit_code = 12


class OutOfMemoryError(OutboxError):
    """A batch does not fit in Spark's memory."""

    exit_code = 13


class DiskFullError(OutboxError):
    """No space is left for the checkpoint or for Spark's work files."""

    exit_code = 14


class SparkLostError(OutboxError):
    """The JVM in which Spark runs is gone."""

    exit_code = 15


class RefusedError(OutboxError):
    """Postgres refuses what the job does: a right, a table or a constraint is not as this version expects."""

    exit_code = 16


# Each of these may be gone when it is tried again. A checkpoint that cannot be used is, because the next attempt takes a new one.
_PASSING = (UnavailableError, JobFailedError, DiskFullError, SparkLostError, CheckpointUnusableError)

# (signs in Spark's text, error, what it means and what mends it), the first that fits counts
_SPARK: tuple[tuple[tuple[str, ...], type[OutboxError], str], ...] = (
    (
        ("BucketTooLarge",),
        BucketTooLargeError,
        "the open sessions of one bucket outgrew [session] max_bucket_bytes",
    ),
    (
        ("TransformStoppedError",),
        TransformFailedError,
        'the transform failed and [transform] on_error is "stop"',
    ),
    (("db.errors.SettingsError",), SettingsError, "a setting does not hold where Spark's workers run"),
    (
        ("java.lang.OutOfMemoryError", "maxResultSize"),
        OutOfMemoryError,
        "a batch does not fit in Spark's memory: raise [job] driver_memory, or lower max_events_per_batch and start with --new-generation",
    ),
    (
        ("No space left on device", "Disk quota exceeded"),
        DiskFullError,
        "the disk of the checkpoint or of Spark's work files is full: make room",
    ),
    (
        ("Some data may have been lost",),
        ContinuityError,
        "Kafka has deleted offsets that the job needs, or the topic was made again; the next start says what is lost and what goes on",
    ),
    (
        ("CONCURRENT_STREAM_LOG_UPDATE", "Multiple streaming jobs detected"),
        JobFailedError,
        "another query still writes to the same checkpoint",
    ),
    (
        (
            "java.net.ConnectException",
            "java.net.SocketTimeoutException",
            "java.net.UnknownHostException",
            "java.net.NoRouteToHostException",
        ),
        UnavailableError,
        "a server that Spark needs (Kafka, or the file system of the checkpoint) does not answer",
    ),
    (
        (
            "org.apache.kafka.common.errors.TimeoutException",
            "org.apache.kafka.common.errors.DisconnectException",
            "org.apache.kafka.common.KafkaException: Failed to",
        ),
        UnavailableError,
        "Kafka does not answer Spark: check [kafka] bootstrap_servers and java_options",
    ),
    (
        (
            # the state: its folder, its files, what they hold, and their schema
            "STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY",
            "CANNOT_LOAD_STATE_STORE",
            "UnknownStateVersion",
            ".StateSchemaCompatibilityChecker",
            # the logs of offsets and commits: read when the query begins, and before each batch
            ".MicroBatchExecution.initializeExecution(",
            ".HDFSMetadataLog.getExistingBatch(",
            ".KafkaMicroBatchStream.deserializeOffset(",
            # the file `metadata`
            "STREAMING_CHECKPOINT_MISSING_METADATA_FILE",
            ".StreamMetadata$.read(",
        ),
        CheckpointUnusableError,
        "Spark cannot use its checkpoint",
    ),
)
_REFUSED = (
    psycopg.IntegrityError,
    psycopg.DataError,
    psycopg.ProgrammingError,
    psycopg.NotSupportedError,
    psycopg.errors.ProgramLimitExceeded,
    psycopg.errors.DataCorrupted,
    psycopg.errors.IndexCorrupted,
)


def passes_by_itself(error: OutboxError) -> bool:
    """Tell whether another attempt can succeed without anybody's doing."""
    if isinstance(error, SparkLostError) and not jvm.is_ours():
        return False
    return isinstance(error, _PASSING)


# What Postgres refuses for now, what it means, and what mends it. Each has ended the transaction: nothing of the batch was written.
_POSTGRES: tuple[tuple[type[psycopg.Error], str], ...] = (
    (psycopg.errors.DiskFull, "the disk of Postgres is full: {what}. Make room there and start again"),
    (
        psycopg.errors.LockNotAvailable,
        "somebody else held a lock for longer than [postgres] lock_timeout_ms: {what}. pg_stat_activity and pg_locks show who; start again",
    ),
    (
        psycopg.errors.IdleInTransactionSessionTimeout,
        "this process stood still inside a batch for longer than [postgres] idle_in_transaction_timeout_ms: {what}. Start again",
    ),
    (
        psycopg.errors.ReadOnlySqlTransaction,
        "this Postgres is a standby or read-only: {what}. Name every server in [postgres] dsn, with target_session_attrs=read-write",
    ),
)


def explain(error: BaseException) -> OutboxError:
    """Return what ended the attempt, in words. Nothing was committed by the failed batch: the next attempt repeats it from its plan."""
    if isinstance(error, OutboxError):
        return error
    if isinstance(error, psycopg.Error):
        return _postgres(error)
    if isinstance(error, KafkaException):
        return UnavailableError(
            f"Kafka: {error.args[0].str()}. Check [kafka] bootstrap_servers and [kafka.options]."
        )
    gone = jvm.lost(error)
    if gone is not None:
        return _without_jvm(gone)
    return _spark(error, _text(error))


def _spark(error: BaseException, text: str) -> OutboxError:
    for signs, kind, meaning in _SPARK:
        for sign in signs:
            if sign in text:
                return kind(f"{meaning}. {_relevant(text, sign)}")
    return JobFailedError(f"the Spark query failed: {type(error).__name__}: {text[:2_000]}")


@contextmanager
def explained() -> Iterator[None]:
    """Turn what the servers' clients raise into an OutboxError."""
    try:
        yield
    except (psycopg.Error, KafkaException, PySparkException, Py4JError) as error:
        raise explain(error) from error
    except OSError as error:
        # A call to a JVM that is gone fails at its socket.
        if jvm.lost(error) is None:
            raise
        raise explain(error) from error


def _postgres(error: psycopg.Error) -> OutboxError:
    # The detail may quote a row; names and the primary message do not.
    text = error.diag.message_primary or str(error).partition("\nDETAIL")[0]
    what = " ".join(text.split()).rstrip(".")
    for kind, advice in _POSTGRES:
        if isinstance(error, kind):
            return UnavailableError(f"{advice.format(what=what)}. Nothing of the batch was written.")
    if isinstance(error, _REFUSED):
        constraint = f" (constraint {error.diag.constraint_name})" if error.diag.constraint_name else ""
        return RefusedError(
            f"Postgres refused a batch: {type(error).__name__}: {what}{constraint}. Nothing of it was written."
        )
    return UnavailableError(
        f"Postgres failed: {type(error).__name__}: {what}. A batch that was being written is either whole in the outbox or not there; "
        "the next attempt finds out."
    )


def _without_jvm(gone: jvm.LostJvm) -> OutboxError:
    if gone.out_of_memory:
        return OutOfMemoryError(f"Spark's JVM ran out of memory ({gone}): raise [job] driver_memory.")
    return SparkLostError(
        f"Spark's JVM is gone ({gone}). A batch that was being written is either whole in the outbox or not there; the next attempt "
        "finds out. Where the system ended it for want of memory, the machine or container needs more than [job] driver_memory."
    )


def _text(error: BaseException) -> str:
    """Message and Java stack: some of Spark's messages are only `assertion failed`, and the stack tells what was being read."""
    return f"{error}\n{getattr(error, '_stackTrace', None) or ''}"


def _relevant(text: str, sign: str) -> str:
    """The message that the sign belongs to, without the Java stack. Spark's text holds the Python traceback of a worker as well."""
    lines = [line.strip() for line in text.splitlines()]
    found = [index for index, line in enumerate(lines) if sign in line]
    # Where the error itself stands rather than the code that raised it.
    at = next((index for index in found if f"{sign}: " in lines[index]), found[0])
    while at > 0 and lines[at].startswith("at "):
        at -= 1
    told = [line for line in lines[at : at + 3] if not line.startswith("at ") and "Traceback" not in line]
    return " ".join(told)[:1_000]
