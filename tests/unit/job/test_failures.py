"""What ends the job says what to do, with an exit code that tells whether a restart helps, and without payloads."""

import psycopg
import pytest

from db.errors import ContinuityError, FencedError, OutboxError, UnavailableError
from spark_job.failures import JobFailedError, explain, explained


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
        (
            psycopg.errors.ReadOnlySqlTransaction("read-only"),
            UnavailableError,
            "target_session_attrs=read-write",
        ),
        (
            psycopg.errors.CheckViolation("violates\nDETAIL:  Failing row contains (secret)"),
            JobFailedError,
            "violates",
        ),
        (RuntimeError("... Some data may have been lost because ..."), ContinuityError, "deleted offsets"),
        (
            RuntimeError("[CANNOT_LOAD_STATE_STORE] x"),
            ContinuityError,
            "state in the checkpoint cannot be read",
        ),
        (RuntimeError("a\nBucketTooLarge: the 5 open sessions\nb"), JobFailedError, "the 5 open sessions"),
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


def test_a_servers_error_outside_the_query_is_explained_too() -> None:
    with pytest.raises(UnavailableError, match="gone"), explained():
        raise psycopg.OperationalError("gone")
