"""Connections to the outbox, opened the same way by every part."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, LiteralString

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import TupleRow, tuple_row

from db.refused import NO_CLEAR_PASSWORD, failed_connection
from db.statements import queries
from service.errors import DatabaseMissingError, SettingsError
from service.lifecycle.tracebacks import release_frames
from service.logins.postgres import by_login
from service.settings import PostgresSettings
from service.settings.dsn import PLAIN_MODES, is_remote, libpq_options

_SESSION = queries("db", "session")

# How long a statement waits for a server that has gone without a word.
_GONE_S = 30
_PROBES = 3
_LOOKS = 10
_ALWAYS_THERE = ("postgres", "template1")
# The version of libpq that has it.
_REQUIRES_AUTH = 160_000

_proven: set[str] = set()
"""DSNs that lead through a pooler which keeps a server connection for each client."""
_proving = threading.Lock()


def longest_wait_s(settings: PostgresSettings) -> float:
    """Return how long a connection attempt and a statement may wait for a server that does not answer, or for a lock."""
    hosts = settings.address().rpartition("/")[0].count(",") + 1
    return settings.connect_timeout_s * hosts + max(_GONE_S, settings.lock_timeout_ms / 1000)


def connect(settings: PostgresSettings, application: str, **options: Any) -> psycopg.Connection[TupleRow]:
    """Open a connection that pg_stat_activity shows as `application`.

    Raises UnavailableError when the server does not answer, its kinds CredentialsRefusedError when it refuses the login or a certificate
    proves nothing, HostUnknownError when no host has the name, DatabaseMissingError when it has no such database,
    SettingsError when a pooler on the way does not keep sessions or the login cannot be used so, its kind SecretUnreadableError when
    `dsn_file` cannot be read; the password never appears in the message.
    """
    settings = settings.reread()
    login = by_login(settings)

    def open_one(**others: Any) -> psycopg.Connection[TupleRow]:
        return psycopg.connect(
            settings.dsn.get_secret_value(),
            application_name=application,
            # In the startup packet: what `set` itself returns is read by it.
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
        if _is_missing(settings, error, login):
            raise DatabaseMissingError(
                f"Postgres at {settings.address()} cannot be used: it has no database {settings.database()!r}. Correct [postgres] dsn "
                "(OUTBOX_POSTGRES__DSN), or create the database and run `outbox-migrate up`."
            ) from error
        raise failed_connection(settings, error)(
            f"Postgres at {settings.address()} cannot be used: {str(error).strip()}. "
            f"Check [postgres] dsn (OUTBOX_POSTGRES__DSN){_of_tls(settings, error)}; `devstack status` shows a local one."
        ) from error
    return connection


def _no_clear_password(settings: PostgresSettings) -> dict[str, Any]:
    """Return what keeps libpq from telling its password to whoever answers for another machine and asks for it without TLS.

    A DSN with sslmode=require or more, with a `require_auth` of its own, or that names a connection service is left as it is.
    """
    if "service" in conninfo_to_dict(settings.dsn.get_secret_value()):
        return {}
    options = libpq_options(settings.dsn)
    is_plain = is_remote(options) and options.get("sslmode", "prefer") in PLAIN_MODES
    if not is_plain or "require_auth" in options or psycopg.pq.version() < _REQUIRES_AUTH:
        return {}
    return {"require_auth": NO_CLEAR_PASSWORD}


def _of_tls(settings: PostgresSettings, error: psycopg.Error) -> str:
    """What else may be wrong, where the DSN has the server's certificate checked, or should."""
    if NO_CLEAR_PASSWORD in str(error):
        return (
            ": the server asks for the password as it is, which another machine gets over TLS alone (sslmode=verify-full with sslrootcert; "
            "require_auth=password in the DSN allows it all the same)"
        )
    mode = str(conninfo_to_dict(settings.dsn.get_secret_value()).get("sslmode", ""))
    if not mode.startswith("verify-"):
        return ""
    return f": with sslmode={mode}, its sslrootcert must have signed the certificate of the server, which must be of the dsn's host"


@contextmanager
def snapshot(connection: psycopg.Connection[Any]) -> Iterator[None]:
    """A transaction in which every query sees one state of the outbox and none can write. Raises psycopg.Error."""
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        yield


def _is_missing(settings: PostgresSettings, error: psycopg.Error, login: dict[str, Any]) -> bool:
    """Whether a connection failed because there is no such database, by the server's own catalogue.

    A failed connection has no SQLSTATE, and its message is in the server's language: the name in it, however it is quoted, is only a
    reason to ask.
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
    open_another: Callable[[], psycopg.Connection[TupleRow]],
) -> None:
    """Set what a session is, and see in another transaction that it stays so. Raises SettingsError, psycopg.Error."""
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
        # A pooler names itself to its clients.
        _prove_sessions(connection, settings, pid, open_another)


def _prove_sessions(
    connection: psycopg.Connection[Any],
    settings: PostgresSettings,
    pid: int,
    open_another: Callable[[], psycopg.Connection[TupleRow]],
) -> None:
    """See once a process that the pooler gives this connection's server to nobody else. Raises SettingsError, psycopg.Error.

    In transaction mode another client's transaction gets the server that was used last, which is this one's.
    """
    dsn = settings.dsn.get_secret_value()
    with _proving:
        if dsn in _proven:
            return
        for _ in range(_PROBES):
            with open_another() as other, other.transaction():
                (taken,) = _row(other, _SESSION["backend_pid"])
                # Where other clients are busy, this one's server may be free again just when it is looked at: often is cheap.
                seen = {_row(connection, _SESSION["backend_pid"]) for _ in range(_LOOKS)}
                if taken == pid or seen != {(pid,)}:
                    raise _no_sessions(settings)
        _proven.add(dsn)


def _row(
    connection: psycopg.Connection[Any], query: LiteralString, **parameters: str | list[str]
) -> TupleRow:
    """Run a query in a transaction of its own, unless one is open."""
    in_transaction = connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE
    with connection.cursor(row_factory=tuple_row) as cursor:
        # Not prepared: behind a pooler in transaction mode the next server would not know it.
        row = cursor.execute(query, parameters, prepare=False).fetchone()
    assert row is not None
    if not in_transaction:
        connection.commit()
    return row


def _no_sessions(settings: PostgresSettings) -> SettingsError:
    return SettingsError(
        f"Postgres at {settings.address()} is behind a pooler that does not keep a server connection for each client (PgBouncer with "
        "pool_mode = transaction): settings, locks and LISTEN of a session would be lost or somebody else's. Set pool_mode = "
        "session for this database, or let [postgres] dsn (OUTBOX_POSTGRES__DSN) lead to Postgres itself (docs/postgres.md)"
    )
