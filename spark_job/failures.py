"""From what ended the job to an error that says what to do."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from confluent_kafka import KafkaException
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from db.errors import ContinuityError, OutboxError, UnavailableError


class JobFailedError(OutboxError):
    """The Spark query failed for a reason that this job does not know."""

    exit_code = 10


# (text in Spark's message, what it means and what mends it): a start again can help
_FAILURES = (
    ("BucketTooLarge", "the open sessions of one bucket outgrew [session] max_bucket_bytes"),
    ("TransformStoppedError", 'the transform failed and [transform] on_error is "stop"'),
    (
        "OutOfMemoryError",
        "Spark ran out of memory: raise [job] driver_memory; the batch that failed is repeated as it was planned",
    ),
    ("maxResultSize", "the outputs of one batch do not fit in the driver: raise [job] driver_memory"),
    ("No space left on device", "the disk of the checkpoint or of Spark's work folder is full"),
)
# the same, where going on needs a decision
_DISCONTINUITIES = (
    (
        "Some data may have been lost",
        "Kafka has deleted offsets that the job still needs, or the topic was made again",
    ),
    ("UnknownStateVersion", "the state in the checkpoint was written by another version of this job"),
    ("CANNOT_LOAD_STATE_STORE", "the state in the checkpoint cannot be read"),
    ("CONCURRENT_STREAM_LOG_UPDATE", "another process writes to the same checkpoint"),
    ("Multiple streaming jobs detected", "another process writes to the same checkpoint"),
)


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
    """Return the error to end the process with. Nothing was committed by the failed batch: a start repeats it from its plan."""
    if isinstance(error, OutboxError):
        return error
    if isinstance(error, psycopg.Error):
        return _postgres(error)
    if isinstance(error, KafkaException):
        return UnavailableError(
            f"Kafka: {error.args[0].str()}. Check [kafka] bootstrap_servers and [kafka.options]."
        )
    text = str(error)
    for signs, kind in ((_DISCONTINUITIES, ContinuityError), (_FAILURES, JobFailedError)):
        for sign, meaning in signs:
            if sign in text:
                return kind(f"{meaning}. {_relevant(text, sign)}")
    return JobFailedError(f"the Spark query failed: {type(error).__name__}: {text[-2_000:]}")


@contextmanager
def explained() -> Iterator[None]:
    """Turn what the servers' clients raise into an OutboxError."""
    try:
        yield
    except (psycopg.Error, KafkaException, PySparkException, Py4JError) as error:
        raise explain(error) from error


def _postgres(error: psycopg.Error) -> OutboxError:
    # The detail may quote a row; names and the primary message do not.
    text = error.diag.message_primary or str(error).partition("\nDETAIL")[0]
    what = " ".join(text.split()).rstrip(".")
    for kind, advice in _POSTGRES:
        if isinstance(error, kind):
            return UnavailableError(f"{advice.format(what=what)}. Nothing of the batch was written.")
    gone = psycopg.OperationalError | psycopg.InterfaceError
    if isinstance(error, gone):
        return UnavailableError(
            f"Postgres failed during a batch: {what}. The batch is either whole in the outbox or not there; the next start finds out. "
            "Start again when Postgres is back."
        )
    constraint = f" (constraint {error.diag.constraint_name})" if error.diag.constraint_name else ""
    return JobFailedError(
        f"Postgres refused a batch: {type(error).__name__}: {what}{constraint}. Nothing of it was written."
    )


def _relevant(text: str, sign: str) -> str:
    """The lines around the sign: Spark's message holds the Python traceback of the worker as well."""
    lines = text.splitlines()
    at = next(index for index, line in enumerate(lines) if sign in line)
    return " ".join(line.strip() for line in lines[at : at + 3])
