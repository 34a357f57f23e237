"""Explain Postgres and Kafka errors raised in this process, and how to fix them."""

import psycopg
from confluent_kafka import KafkaException

from service.errors import (
    READ_ONLY,
    CredentialsRefusedError,
    OptionsRefusedError,
    OutboxError,
    RefusedError,
    UnavailableError,
    reason_of,
)
from service.kafka.client import failure_class

# Errors that Postgres may not raise again, with their messages. Each aborted the transaction.
_POSTGRES: tuple[tuple[type[psycopg.Error], str], ...] = (
    (psycopg.errors.DiskFull, "the disk of Postgres is full: {what}. Make room there and start again"),
    (
        psycopg.errors.LockNotAvailable,
        "another session held a lock for longer than [postgres] lock_timeout_ms: {what}. Query pg_stat_activity and pg_locks; start again",
    ),
    (
        psycopg.errors.IdleInTransactionSessionTimeout,
        "this process was frozen inside a batch for longer than [postgres] idle_in_transaction_timeout_ms: {what}. Start again",
    ),
    (psycopg.errors.ReadOnlySqlTransaction, READ_ONLY),
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


# The messages for code that does not know the settings; `failure_of` in service/kafka/client.py names the settings.
_KAFKA: dict[type[OutboxError], str] = {
    OptionsRefusedError: "no Kafka client can be made with these settings: {what}. Correct [kafka.options].",
    CredentialsRefusedError: (
        "Kafka refuses the job's credentials, or there is no TLS connection to it: {what}. Correct [kafka.options] (sasl.*, ssl.*)."
    ),
    RefusedError: "Kafka refuses the job: {what}. Grant it this right (docs/ecosystem.md has all rights).",
    UnavailableError: "Kafka: {what}. Check [kafka] bootstrap_servers and [kafka.options].",
}


def of_kafka(error: KafkaException) -> OutboxError:
    """Return the error for what a client of Kafka raised."""
    kind = failure_class(error.args[0])
    return kind(_KAFKA[kind].format(what=error.args[0].str()))


def of_postgres(error: psycopg.Error) -> OutboxError:
    """Return the error for what psycopg raised, without values of rows."""
    what = " ".join(reason_of(error).split()).rstrip(".")
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
        f"Postgres failed: {type(error).__name__}: {what}. A batch that was being written is either complete in the outbox or "
        "absent; the next attempt checks."
    )
