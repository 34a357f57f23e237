"""From what ended an attempt to an error that says what happened and what mends it, and whether it passes by itself.

Spark hands its failures on as text: message, then the Java stack with its causes. So a cause is known by a sign in that text.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from confluent_kafka import KafkaError, KafkaException
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from service.errors import (
    ContinuityError,
    CredentialsRefusedError,
    MovedError,
    OutboxError,
    RefusedError,
    SettingsError,
    UnavailableError,
)
from service.kafka_client import UNAUTHENTICATED, UNAUTHORISED
from spark_job.spark import jvm


class JobFailedError(OutboxError):
    """The Spark query failed for a reason that this job does not know."""

    exit_code = 10


class TransformFailedError(OutboxError):
    """The transform raised and `[transform] on_error` is "stop"."""

    exit_code = 11


class OpenSessionsTooLargeError(OutboxError):
    """The open sessions of one partition outgrew their limit."""

    exit_code = 12


class BatchTooLargeError(OutboxError):
    """A batch did not fit in memory; the next attempt takes a smaller one."""

    exit_code = 13


class DiskFullError(OutboxError):
    """No space is left for Spark's work files."""

    exit_code = 14


class SparkLostError(OutboxError):
    """The JVM in which Spark runs is gone."""

    exit_code = 15


class WorkerDiedError(OutboxError):
    """Spark's Python workers or executors ended by themselves, several times in one batch."""

    exit_code = 17


class SmallestBatchError(OutboxError):
    """Not even a batch of one event gets through."""

    exit_code = 20


class WorkerCodeChangedError(OutboxError):
    """The code of a worker is not that of the run."""

    exit_code = 18


# (signs in Spark's text, error, what it means and what mends it), the first that fits counts. The job's own come first: their texts may
# quote others.
SPARK_SIGNS: tuple[tuple[tuple[str, ...], type[OutboxError], str], ...] = (
    (
        ("PartitionTooLargeError",),
        OpenSessionsTooLargeError,
        "the open sessions of one partition outgrew [session] max_open_bytes",
    ),
    (
        ("TransformStoppedError",),
        TransformFailedError,
        'the transform failed and [transform] on_error is "stop"',
    ),
    (("CodeChangedError",), WorkerCodeChangedError, "code was changed under the running job"),
    (
        ("answers HTTP 401",),
        CredentialsRefusedError,
        "the schema registry refuses the credentials: check [schema_registry]",
    ),
    (
        ("OutputSchemaRefusedError",),
        RefusedError,
        "the schema registry refuses the schema of an output",
    ),
    (
        ("RegistryRefusedError",),
        RefusedError,
        "the schema registry refuses what the job asks: check [schema_registry]",
    ),
    (
        ("RegistryAwayError",),
        UnavailableError,
        "the schema registry is away; nothing is judged without it, the next attempt asks again",
    ),
    (
        ("OpenSessionsDifferError",),
        ContinuityError,
        (
            "the open sessions are not what they were. See what happened to the input; `spark-job run --accept-data-loss` continues "
            "with what is found"
        ),
    ),
    (
        ("InputSchemaError",),
        SettingsError,
        (
            "Spark's Kafka source did not give its workers the records that the job asked for: its connector is another version, or "
            "[job.spark_options] changes what it does"
        ),
    ),
    (
        ("RecordsGoneError",),
        MovedError,
        "records that a task needs are gone from Kafka; the next start says what is lost and what continues",
    ),
    (
        ("NoAnswerError",),
        UnavailableError,
        "Kafka did not answer a task that read from it",
    ),
    (
        (
            "service.errors.SettingsError",
            "ModuleNotFoundError: No module named 'spark_job'",
            "schemas need the extra `schema-registry`",
        ),
        SettingsError,
        "something is missing or wrong where Spark's workers run",
    ),
    (
        (
            "java.lang.OutOfMemoryError",
            "spark.driver.maxResultSize",
            "Cannot grow BufferHolder",
            "exceeds the limit of 2147483647",
        ),
        BatchTooLargeError,
        (
            "a batch does not fit in memory. The next attempt takes a quarter of its events; [job] driver_memory and "
            "max_events_per_batch decide "
            "what is tried first"
        ),
    ),
    (
        ("Python worker exited unexpectedly", "Python worker failed to connect back", "ExecutorLostFailure"),
        WorkerDiedError,
        (
            "Spark's Python workers or executors died again and again: killed for lack of memory, or crashed in native code, for "
            "instance in the "
            "transform. The next attempt takes a quarter of the events"
        ),
    ),
    (
        ("No space left on device", "Disk quota exceeded"),
        DiskFullError,
        "the disk of Spark's work files is full: make room (spark.local.dir in [job.spark_options] moves them)",
    ),
    (
        ("Some data may have been lost", "KAFKA_DATA_LOSS", "OffsetOutOfRangeException"),
        MovedError,
        "Kafka no longer has what the query was reading; the next start says what is lost and what continues",
    ),
    (
        (
            "errors.SaslAuthenticationException",
            "errors.SslAuthenticationException",
            "SSLHandshakeException",
            "javax.security.auth.login.LoginException",
            # librdkafka's words, where open sessions are found again
            "code=_AUTHENTICATION",
            "code=_SSL",
            "SASL_AUTHENTICATION_FAILED",
        ),
        CredentialsRefusedError,
        "Kafka refuses the credentials or a certificate of Spark's executors. They use what [kafka] says",
    ),
    (
        (
            "errors.TopicAuthorizationException",
            "errors.GroupAuthorizationException",
            "errors.ClusterAuthorizationException",
            "_AUTHORIZATION_FAILED",
        ),
        RefusedError,
        "Kafka refuses Spark's executors a right, such as Read on the input topics (docs/ecosystem.md). They use what [kafka] says",
    ),
    (
        (
            "java.net.ConnectException",
            "java.net.SocketTimeoutException",
            "java.net.UnknownHostException",
            "java.net.NoRouteToHostException",
            "No resolvable bootstrap urls",
            "org.apache.kafka.common.errors.TimeoutException",
            "org.apache.kafka.common.errors.DisconnectException",
        ),
        UnavailableError,
        "a server that Spark needs does not answer: check [kafka] bootstrap_servers",
    ),
    (
        (
            "org.apache.kafka.common.config.ConfigException",
            "org.apache.kafka.common.KafkaException: Failed to construct",
            "org.apache.kafka.common.KafkaException: Failed to create",
            "code=_INVALID_ARG",
        ),
        SettingsError,
        "Kafka's client refuses its settings: correct [kafka.options], or for Spark's [kafka.java_options], which win",
    ),
    (
        ("DATA_SOURCE_NOT_FOUND", "Failed to find the data source: kafka"),
        SettingsError,
        "Spark has no Kafka connector: its jars are not those that the job named (spark.jars in [job.spark_options], spark-submit --jars)",
    ),
)

# Each of these may be gone when it is tried again: a server comes back, another attempt takes a smaller batch or sees where things are now.
_PASSING = (
    UnavailableError,
    MovedError,
    JobFailedError,
    BatchTooLargeError,
    DiskFullError,
    SparkLostError,
    WorkerDiedError,
)
SMALLER_MAY_PASS = (BatchTooLargeError, WorkerDiedError)
"""An attempt that ends so may pass with fewer events; where it took one event only, it does not."""

# What Postgres refuses for now, what it means, and what mends it. Each has ended the transaction: nothing of the batch was written.
_POSTGRES: tuple[tuple[type[psycopg.Error], str], ...] = (
    (psycopg.errors.DiskFull, "the disk of Postgres is full: {what}. Make room there and start again"),
    (
        psycopg.errors.LockNotAvailable,
        "somebody else held a lock for longer than [postgres] lock_timeout_ms: {what}. pg_stat_activity and pg_locks show who; start again",
    ),
    (
        psycopg.errors.IdleInTransactionSessionTimeout,
        "this process was frozen inside a batch for longer than [postgres] idle_in_transaction_timeout_ms: {what}. Start again",
    ),
    (
        psycopg.errors.ReadOnlySqlTransaction,
        "this Postgres is a standby or read-only: {what}. Name every server in [postgres] dsn, with target_session_attrs=read-write",
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


def explain(error: BaseException) -> OutboxError:
    """Return what ended the attempt, in words. Nothing was committed by the failed batch: the next attempt begins where the ledger ends."""
    if isinstance(error, OutboxError):
        return error
    if isinstance(error, psycopg.Error):
        return _postgres(error)
    if isinstance(error, KafkaException):
        return _kafka(error)
    gone = jvm.lost(error)
    if gone is not None:
        return _without_jvm(gone)
    return _spark(error, text_of(error))


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


def _spark(error: BaseException, text: str) -> OutboxError:
    for signs, kind, meaning in SPARK_SIGNS:
        for sign in signs:
            if sign in text:
                return kind(f"{meaning}. {_relevant(text, sign)}")
    return JobFailedError(
        f"the Spark query failed: {type(error).__name__}: {_causes(text)} (the whole of it is in spark.log, see docs/operations.md)"
    )


def _kafka(error: KafkaException) -> OutboxError:
    told = error.args[0]
    if told.code() in UNAUTHORISED:
        kind = CredentialsRefusedError if told.code() in UNAUTHENTICATED else RefusedError
        return kind(f"Kafka refuses the job: {told.str()}. Correct [kafka.options], or grant the right.")
    if told.code() == KafkaError._INVALID_ARG:
        return SettingsError(
            f"no Kafka client can be made with these settings: {told.str()}. Correct [kafka.options]."
        )
    return UnavailableError(f"Kafka: {told.str()}. Check [kafka] bootstrap_servers and [kafka.options].")


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
            f"Postgres refused a batch: {type(error).__name__}: {what}{constraint}. Nothing of it was written. Check the rights of the "
            "job's role and that the schema is untouched (docs/postgres.md)"
        )
    return UnavailableError(
        f"Postgres failed: {type(error).__name__}: {what}. A batch that was being written is either whole in the outbox or not there; "
        "the next attempt finds out."
    )


def _without_jvm(gone: jvm.LostJvm) -> OutboxError:
    if gone.out_of_memory:
        return BatchTooLargeError(
            f"Spark's JVM ran out of memory ({gone}). The next attempt takes a quarter of the events; more [job] driver_memory "
            "prevents this."
        )
    return SparkLostError(
        f"Spark's JVM is gone ({gone}). A batch that was being written is either whole in the outbox or not there; the next attempt "
        "finds out. Where the system ended it for lack of memory, the machine or container needs more than [job] driver_memory."
    )


def text_of(error: BaseException) -> str:
    """Message and Java stack."""
    return f"{error}\n{getattr(error, '_stackTrace', None) or ''}"


def _causes(text: str) -> str:
    """The message and the innermost cause, without the stacks between."""
    lines = [line.strip() for line in text.splitlines()]
    causes = [line for line in lines if line.startswith("Caused by: ")]
    told = [
        line
        for line in lines[:20]
        if line and not line.startswith(("at ", "Caused by: ", "File ", "Traceback"))
    ]
    return " ".join([" ".join(told)[:1_000], *causes[-2:]])[:2_000]


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
