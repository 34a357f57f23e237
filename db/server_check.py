"""The checks of `outbox-migrate check`: whether this Postgres can hold an outbox. They run as the login that will migrate it.

One query reads most facts; the checks judge them. `connect` itself refuses a pooler that keeps no sessions.
"""

import uuid
from dataclasses import dataclass
from functools import partial
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import kwargs_row

from db.migrate import ROLES
from db.statements import migration_script, queries, quoted
from service.commands.checks import CheckAnswer, ServerCheck
from service.errors import reason_of
from service.settings import Settings

_SERVER = queries("db", "server")

_LEAST_VERSION = 150_000
# A partition of session_output has two indexes. A statement over all partitions locks each partition and both its indexes.
_LOCKS_A_PARTITION = 3
_NOTIFY_S = 5.0
_JOB_CONNECTIONS = 2
_PUBLISHER_CONNECTIONS = 3
_CONSOLE_CONNECTIONS = 4


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """The facts about the server, the database and the login (db/sql/server.sql)."""

    version_number: int
    version: str
    encoding: str
    database: str
    login: str
    is_standby: bool
    is_read_only: bool
    may_create: bool
    may_make_roles: bool
    roles: list[str]
    """The outbox's roles that exist on the server."""
    member_of: list[str]
    owns_schema: bool | None
    """As a migration judges it (schema_is_ours.sql). None if there is no schema `outbox`."""
    fsync: bool
    full_page_writes: bool
    synchronous_commit: str
    """The value in this session, which both services set in the same way."""
    synchronous_standby_names: str
    max_locks: int
    max_prepared: int
    max_connections: int
    reserved: int
    login_limit: int
    database_limit: int
    """For both limits, -1 means none."""
    taken: int
    partitions: int
    backend_pid: int


@dataclass(frozen=True, slots=True)
class AskedServer:
    """A server and its facts. `connections`: how many the services will need (`connections_needed`)."""

    connection: psycopg.Connection[Any]
    facts: ServerFacts
    connections: int


def ask_server(connection: psycopg.Connection[Any], connections: int) -> AskedServer:
    """Read the facts from the server. `connection` must be in autocommit mode. Raises psycopg.Error."""
    (owns_schema,) = connection.execute(migration_script("schema_is_ours")).fetchone() or (None,)
    with connection.cursor(row_factory=kwargs_row(partial(ServerFacts, owns_schema=owns_schema))) as cursor:
        facts = cursor.execute(_SERVER["facts"], {"roles": list(ROLES)}).fetchone()
    assert facts is not None
    return AskedServer(connection, facts, connections)


def connections_needed(settings: Settings, publishers: int) -> int:
    """Return the most connections that one job and `publishers` publisher processes use together, without commands (docs/running.md,
    Scale)."""
    polls = int(settings.metrics.port > 0)
    job = _JOB_CONNECTIONS + int(settings.metrics.port_of_job() > 0)
    console = _CONSOLE_CONNECTIONS if settings.console.port else 0
    return job + publishers * (_PUBLISHER_CONNECTIONS + polls + console) + settings.publisher.lanes


def _version(server: AskedServer) -> CheckAnswer:
    facts = server.facts
    if facts.version_number < _LEAST_VERSION:
        return CheckAnswer(
            "failed", f"Postgres {facts.version}", "upgrade the server to Postgres 15 or newer"
        )
    return CheckAnswer("ok", f"Postgres {facts.version}")


def _encoding(server: AskedServer) -> CheckAnswer:
    facts = server.facts
    if facts.encoding != "UTF8":
        return CheckAnswer(
            "failed",
            f"database {facts.database} has encoding {facts.encoding}",
            "make another database: CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0",
        )
    return CheckAnswer("ok", f"database {facts.database} has encoding UTF8")


def _writable(server: AskedServer) -> CheckAnswer:
    facts = server.facts
    if facts.is_standby:
        return CheckAnswer(
            "failed",
            "this server is a standby",
            "name every server in [postgres] dsn (OUTBOX_POSTGRES__DSN), with target_session_attrs=read-write",
        )
    if facts.is_read_only:
        return CheckAnswer(
            "failed",
            "transactions are read-only",
            "take default_transaction_read_only from the server or the database (ALTER DATABASE … RESET default_transaction_read_only)",
        )
    return CheckAnswer("ok", "a primary that takes writes")


def _rights(server: AskedServer) -> CheckAnswer:
    facts = server.facts
    if facts.owns_schema:
        return CheckAnswer("ok", f"{facts.login} owns the schema outbox")
    if facts.owns_schema is False:
        if facts.member_of:
            return CheckAnswer(
                "ok",
                f"there is an outbox; {facts.login} has {', '.join(facts.member_of)}. Only the schema's owner can migrate it",
            )
        return CheckAnswer(
            "failed",
            f"there is a schema outbox, and {facts.login} neither owns it nor has a role of it",
            f"run outbox-migrate as its owner, or GRANT {ROLES[0]} (or {', '.join(ROLES[1:])}) TO {quoted(facts.login)}",
        )
    missing = [role for role in ROLES if role not in facts.roles]
    remedies = []
    if not facts.may_create:
        remedies.append(f"GRANT CREATE ON DATABASE {quoted(facts.database)} TO {quoted(facts.login)}")
    if missing and not facts.may_make_roles:
        made = " ".join(f"CREATE ROLE {role} NOLOGIN;" for role in missing)
        remedies.append(f"have an administrator run: {made}")
    if remedies:
        return CheckAnswer(
            "failed",
            f"{facts.login} may {'' if facts.may_create else 'not '}create a schema and may "
            f"{'' if facts.may_make_roles else 'not '}make roles",
            "; ".join(remedies),
        )
    return CheckAnswer(
        "ok", f"{facts.login} may create the schema{' and the roles' if missing else '; the roles are there'}"
    )


def _durability(server: AskedServer) -> CheckAnswer:
    facts = server.facts
    off = [name for name in ("fsync", "full_page_writes") if not getattr(facts, name)]
    if off:
        return CheckAnswer(
            "failed",
            " and ".join(f"{name} = off" for name in off),
            f"set {' and '.join(f'{name} = on' for name in off)} on the server: a crash of the machine would lose or damage what was "
            "committed, unnoticed",
        )
    standbys = facts.synchronous_standby_names
    replicas = f"synchronous_standby_names = '{standbys}'" if standbys else "no synchronous replica"
    return CheckAnswer(
        "ok",
        f"fsync and full_page_writes are on, synchronous_commit is {facts.synchronous_commit}; {replicas}",
    )


def _identity(server: AskedServer) -> CheckAnswer:
    try:
        row = server.connection.execute(_SERVER["identity"]).fetchone()
    except psycopg.errors.InsufficientPrivilege as error:
        return CheckAnswer(
            "failed",
            reason_of(error),
            "GRANT EXECUTE ON FUNCTION pg_control_system() to the login that migrates",
        )
    except psycopg.Error as error:
        if server.connection.closed:
            raise
        return CheckAnswer(
            "not supported",
            reason_of(error),
            "on Aurora set rds.logical_replication = 1 and restart (docs/managed-services.md)",
        )
    assert row is not None
    return CheckAnswer("ok", f"system identifier {row[0]}")


def _sessions(server: AskedServer) -> CheckAnswer:
    # `connect` has already refused a pooler that would give this server connection to other clients.
    if server.facts.backend_pid != server.connection.info.backend_pid:
        return CheckAnswer("ok", "through a pooler, which keeps a server connection for each client")
    return CheckAnswer("ok", "a server connection of its own")


def _listen(server: AskedServer) -> CheckAnswer:
    channel = sql.Identifier(f"outbox_check_{uuid.uuid4().hex}")
    server.connection.execute(sql.SQL("LISTEN {}").format(channel))
    try:
        server.connection.execute(sql.SQL("NOTIFY {}").format(channel))
        heard = list(server.connection.notifies(timeout=_NOTIFY_S, stop_after=1))
    finally:
        server.connection.execute(sql.SQL("UNLISTEN {}").format(channel))
    if not heard:
        return CheckAnswer(
            "not supported",
            f"no notification within {_NOTIFY_S:g} s",
            "connect to Postgres itself instead of a proxy; otherwise rows wait for [publisher] poll_ms",
        )
    return CheckAnswer("ok", "a notification was heard")


def _connections(server: AskedServer) -> CheckAnswer:
    facts = server.facts
    bounds = {
        "max_connections": facts.max_connections - facts.reserved - facts.taken,
        f"connection limit of {facts.login}": facts.login_limit,
        f"connection limit of database {facts.database}": facts.database_limit,
    }
    name, left = min(
        ((name, left) for name, left in bounds.items() if left != -1 or name == "max_connections"),
        key=lambda each: each[1],
    )
    found = f"{server.connections} needed, {max(left, 0)} left by {name}"
    if left < server.connections:
        return CheckAnswer(
            "failed", found, f"raise {name}, or lower [publisher] lanes before the first start"
        )
    return CheckAnswer("ok", found)


def _locks(server: AskedServer) -> CheckAnswer:
    facts = server.facts
    capacity = facts.max_locks * (facts.max_connections + facts.max_prepared)
    needed = facts.partitions * _LOCKS_A_PARTITION
    found = f"max_locks_per_transaction = {facts.max_locks}: {capacity:,} locks; {facts.partitions:,} partitions of outputs"
    if needed > capacity:
        return CheckAnswer(
            "warning",
            found,
            "raise max_locks_per_transaction, or run `publisher retention`: an audit of all that is kept locks each partition",
        )
    return CheckAnswer("ok", found)


CHECKS: tuple[ServerCheck[AskedServer], ...] = (
    ServerCheck("version", "the schema", _version),
    ServerCheck("encoding", "keys and texts as they are", _encoding),
    ServerCheck("writable", "any commit", _writable),
    ServerCheck("rights", "outbox-migrate up", _rights),
    ServerCheck("durability", "exactly once after a crash of the machine", _durability),
    ServerCheck("identity", "to notice a restored or promoted server", _identity),
    ServerCheck("sessions", "locks, LISTEN and settings of a session", _sessions),
    ServerCheck("notifications", "delivery without a poll", _listen),
    ServerCheck("connections", "one job and its publishers", _connections),
    ServerCheck("locks", "audits over all partitions", _locks),
)


def explain(error: Exception) -> CheckAnswer | None:
    """Return the result of a check whose statement failed; None if the server does not answer, or the failure is a bug."""
    if isinstance(error, psycopg.Error) and not isinstance(error, psycopg.OperationalError):
        return CheckAnswer("failed", reason_of(error), "have an administrator allow it")
    return None
