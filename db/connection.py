"""Connections to the outbox, opened the same way by every part."""

from typing import Any

import psycopg
from psycopg.rows import TupleRow

from db.errors import UnavailableError
from db.settings import PostgresSettings

# A service that is stopped inside a transaction must not hold the writer lock for ever.
_SESSION_OPTIONS = (
    "-c idle_in_transaction_session_timeout={idle} -c lock_timeout={lock} -c synchronous_commit=on "
    # A client that vanished in the middle of a COPY: the server must notice it, or it holds the writer lock for two hours.
    "-c tcp_keepalives_idle=10 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3 -c tcp_user_timeout=30000 "
    # What is read after the writer lock was waited for must be what its last holder left.
    "-c default_transaction_isolation=read\\ committed -c timezone=UTC -c search_path=pg_catalog"
)


# How long a statement waits for a server that has gone without a word.
_GONE_S = 30


def longest_wait_s(settings: PostgresSettings) -> float:
    """Return how long a connection attempt and a statement may wait for a server that does not answer, or for a lock."""
    hosts = settings.address().rpartition("/")[0].count(",") + 1
    return settings.connect_timeout_s * hosts + max(_GONE_S, settings.lock_timeout_ms / 1000)


def connect(settings: PostgresSettings, application: str, **options: Any) -> psycopg.Connection[TupleRow]:
    """Open a connection that pg_stat_activity shows as `application`.

    Raises UnavailableError when the server does not answer or refuses; the password never appears in the message.
    """
    dsn = settings.dsn.get_secret_value()
    try:
        given = psycopg.conninfo.conninfo_to_dict(dsn)
        session = _SESSION_OPTIONS.format(
            idle=settings.idle_in_transaction_timeout_ms, lock=settings.lock_timeout_ms
        )
        return psycopg.connect(
            dsn,
            application_name=application,
            connect_timeout=settings.connect_timeout_s,
            options=f"{given.get('options') or ''} {session}".strip(),  # ours last: they win
            keepalives_idle=10,
            keepalives_interval=5,
            keepalives_count=3,
            tcp_user_timeout=_GONE_S * 1000,
            **options,
        )
    except psycopg.Error as error:
        raise UnavailableError(
            f"Postgres at {settings.address()} cannot be used: {str(error).strip()}. "
            "Check [postgres] dsn (OUTBOX_POSTGRES__DSN); `devstack status` shows a local one."
        ) from error
