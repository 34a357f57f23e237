"""Connections to the outbox. Every part opens them in the same way."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, LiteralString

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import TupleRow, tuple_row

from db.refused import NO_CLEAR_PASSWORD, failed_connection
from db.statements import queries
from service.errors import DatabaseMissingError, SettingsError, UnavailableError
from service.kafka.transport import name_unprotected_postgres
from service.lifecycle.tracebacks import release_frames
from service.logins.postgres import by_login
from service.settings import PostgresSettings
from service.settings.dsn import PLAIN_MODES, is_remote, libpq_options, ssl_mode

_SESSION = queries("db", "session")

# How long a statement waits for a server that has stopped answering.
_GONE_S = 30
_PROBES = 3
_LOOKS = 10
_ALWAYS_THERE = ("postgres", "template1")
# The first version of libpq with `require_auth`.
_REQUIRES_AUTH = 160_000

Connection = psycopg.Connection[TupleRow]

_proven: set[str] = set()
"""DSNs that lead through a pooler of which it was proven that it keeps a server connection for each client."""
_proving = threading.Lock()


def longest_wait_s(settings: PostgresSettings) -> float:
    """Return how long a connection attempt and a statement may wait for a server that does not answer, or for a lock."""
    hosts = settings.address().rpartition("/")[0].count(",") + 1
    return settings.connect_timeout_s * hosts + max(_GONE_S, settings.lock_timeout_ms / 1000)


def connect(settings: PostgresSettings, application: str, **options: Any) -> Connection:
    """Open a connection that pg_stat_activity shows as `application`. Reads `dsn_file` again, so a new password needs no restart.

    Raises UnavailableError if the server does not answer, or one of its subclasses: CredentialsRefusedError if the server refuses the login
    or a certificate is not valid, HostUnknownError if no host has the name, ReadOnlyServerError if `target_session_attrs` excludes every
    server, DatabaseMissingError if the database does not exist. Raises SettingsError if a pooler does not keep sessions or the login cannot
    be used, or its subclass SecretUnreadableError if `dsn_file` cannot be read. No message contains the password.
    """
    settings = settings.reread()
    login = by_login(settings)

    def open_one(**others: Any) -> Connection:
        return psycopg.connect(
            settings.dsn.get_secret_value(),
            application_name=application,
            # Sent in the startup packet, because the answer to `set` is decoded with it.
            client_encoding="UTF8",
            connect_timeout=settings.connect_timeout_s,
            keepalives_idle=10,
            keepalives_interval=5,
            keepalives_count=3,
            tcp_user_timeout=_GONE_S * 1000,
            **_no_clear_password(settings),
            **login,
            **others,
        )

    try:
        connection = open_one(**options)
        try:
            _begin_session(connection, settings, lambda: open_one(autocommit=True))
        except BaseException:
            connection.close()
            raise
    except psycopg.Error as error:
        release_frames(error)
        name_unprotected_postgres(settings.dsn)
        if _is_missing(settings, error, login):
            raise DatabaseMissingError(
                f"Postgres at {settings.address()} cannot be used: it has no database {settings.database()!r}. Correct "
                f"{settings.named}, or create the database and run `outbox-migrate up`."
            ) from error
        raise failed_connection(settings, error)(
            f"Postgres at {settings.address()} cannot be used: {str(error).strip()}. "
            f"Check {settings.named}{_of_tls(settings, error)}; `devstack status` shows a local one."
        ) from error
    name_unprotected_postgres(settings.dsn)
    return connection


def _no_clear_password(settings: PostgresSettings) -> dict[str, Any]:
    """Return options that keep libpq from sending a password in clear text to another machine, which might not be the server.

    They are empty for a DSN with sslmode=require or stricter, or with its own `require_auth`; also for an old libpq.
    """
    options = libpq_options(settings.dsn)
    is_plain = is_remote(options) and ssl_mode(options) in PLAIN_MODES
    if not is_plain or "require_auth" in options or psycopg.pq.version() < _REQUIRES_AUTH:
        return {}
    return {"require_auth": NO_CLEAR_PASSWORD}


def _of_tls(settings: PostgresSettings, error: psycopg.Error) -> str:
    """Return a hint about TLS if the server asks for a clear-text password, or if the DSN verifies the server's certificate; else an empty
    text."""
    if NO_CLEAR_PASSWORD in str(error):
        return (
            ": the server asks for the password in clear text, which is sent to another machine over TLS alone (sslmode=verify-full with "
            "sslrootcert; require_auth=password in the DSN allows it without TLS)"
        )
    mode = str(conninfo_to_dict(settings.dsn.get_secret_value()).get("sslmode", ""))
    if not mode.startswith("verify-"):
        return ""
    return f": with sslmode={mode}, the server's certificate must be signed by sslrootcert and name the host of the dsn"


@contextmanager
def confirmed_transaction(connection: Connection) -> Iterator[None]:
    """Run the block in a transaction. If the block and the context end without an error, the transaction is known to be committed.

    If the connection was closed meanwhile, psycopg ends a transaction without COMMIT and without an error. That must not count as success.
    """
    with connection.transaction() as transaction:
        yield
    if transaction.status is not transaction.Status.COMMITTED:
        raise UnavailableError(
            "the connection to Postgres was closed during a transaction: it is unknown whether the transaction was committed. The next "
            "start of the job, or the command run again, finds out"
        )


@contextmanager
def snapshot(connection: psycopg.Connection[Any]) -> Iterator[None]:
    """Run the block in a read-only transaction in which every query sees the same state of the outbox. Raises psycopg.Error."""
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        yield


def _is_missing(settings: PostgresSettings, error: psycopg.Error, login: dict[str, Any]) -> bool:
    """Whether a connection failed because the database does not exist, according to the server's catalogue.

    A failed connection has no SQLSTATE, and its message is in the server's language. So the catalogue is queried if the message contains
    the database's name, however it is quoted.
    """
    name = settings.database()
    if not name or name not in str(error):
        return False
    for other in _ALWAYS_THERE:
        try:
            with psycopg.connect(
                settings.dsn.get_secret_value(),
                dbname=other,
                client_encoding="UTF8",
                connect_timeout=settings.connect_timeout_s,
                **_no_clear_password(settings),
                **login,
            ) as connection:
                return not _row(connection, _SESSION["database_exists"], database=name)[0]
        except psycopg.Error:
            continue
    return False


def _begin_session(
    connection: psycopg.Connection[Any],
    settings: PostgresSettings,
    open_another: Callable[[], Connection],
) -> None:
    """Set the session's parameters, and check in another transaction that they are still set. Raises SettingsError, psycopg.Error."""
    (wanted,) = _row(
        connection,
        _SESSION["set"],
        idle=f"{settings.idle_in_transaction_timeout_ms}ms",
        lock=f"{settings.lock_timeout_ms}ms",
    )
    (found,) = _row(connection, _SESSION["read"], names=list(wanted))
    if found != wanted:
        raise _no_sessions(settings)
    (pid,) = _row(connection, _SESSION["backend_pid"])
    if pid != connection.info.backend_pid:
        # The pid differs behind a pooler, which sends its clients a pid of its own.
        _prove_sessions(connection, settings, pid, open_another)


def _prove_sessions(
    connection: psycopg.Connection[Any],
    settings: PostgresSettings,
    pid: int,
    open_another: Callable[[], Connection],
) -> None:
    """Check, once per process and DSN, that the pooler gives this connection's server to no other client. Raises SettingsError,
    psycopg.Error.

    In transaction mode the transaction of another client gets the server that was used last, which is the one of this connection.
    """
    dsn = settings.dsn.get_secret_value()
    with _proving:
        if dsn in _proven:
            return
        for _ in range(_PROBES):
            with open_another() as other, other.transaction():
                (taken,) = _row(other, _SESSION["backend_pid"])
                # While other clients are busy, the check may find its own server free by chance. So it repeats, which is cheap.
                seen = {_row(connection, _SESSION["backend_pid"]) for _ in range(_LOOKS)}
                if taken == pid or seen != {(pid,)}:
                    raise _no_sessions(settings)
        _proven.add(dsn)


def _row(
    connection: psycopg.Connection[Any], query: LiteralString, **parameters: str | list[str]
) -> TupleRow:
    """Run a query in its own transaction, or in the open one."""
    in_transaction = connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE
    with connection.cursor(row_factory=tuple_row) as cursor:
        # Not prepared: behind a pooler in transaction mode, the next server would not know the statement.
        row = cursor.execute(query, parameters, prepare=False).fetchone()
    assert row is not None
    if not in_transaction:
        connection.commit()
    return row


def _no_sessions(settings: PostgresSettings) -> SettingsError:
    return SettingsError(
        f"Postgres at {settings.address()} is behind a pooler that does not keep a server connection for each client (PgBouncer with "
        "pool_mode = transaction): settings, locks and LISTEN of a session would be lost or somebody else's. Set pool_mode = "
        f"session for this database, or let {settings.named} lead to Postgres itself (docs/postgres.md)"
    )
