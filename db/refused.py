"""Decides why a connection could not be opened: the server or libpq refuses, no server takes writes, no host has the name, or no answer.

A failed connection has no SQLSTATE, and a server's text is in the server's language. In every language a server that refuses a login
quotes the role or names pg_hba.conf. Two other texts are recognised in English only: in another language, a role at its connection limit
counts as refused, and a missing CONNECT right as no answer.
"""

import re
from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from service.errors import CredentialsRefusedError, HostUnknownError, ReadOnlyServerError, UnavailableError
from service.kafka.host_names import none_exists
from service.settings import PostgresSettings

_QUOTES = "\"'`´«»„“”‘’「」"
NO_CLEAR_PASSWORD = "!password"
"""A value of libpq's `require_auth` that forbids sending the password in clear text. libpq repeats the value in its error."""
_REFUSALS = (
    # Errors of TLS
    "certificate",
    "SSL is not enabled",
    "does not support SSL",
    "SSL error",
    "private key",
    # Postgres refuses this client; or the CONNECT right is missing (recognised in English only)
    "pg_hba.conf",
    "permission denied for database",
    # libpq refuses the server, because the server does not meet a demand of the DSN or wants the password in clear
    NO_CLEAR_PASSWORD,
    "channel binding",
    "authentication method requirement",
)
# A role at its connection limit can log in later, so it does not count as refused. The text is recognised in English only.
_FULL = "too many connections"
# Messages about a server that `target_session_attrs` excludes. libpq writes them, not the server. They are in English, because our
# processes set no LC_MESSAGES.
_TAKES_NO_WRITES = ("session is read-only", "server is in hot standby mode")


def failed_connection(settings: PostgresSettings, error: psycopg.Error) -> type[UnavailableError]:
    """Return the class of a failed connection's error: refused, read-only, unknown host, or no answer."""
    given = conninfo_to_dict(settings.dsn.get_secret_value())
    # libpq's own "connection to server at <host>" repeats the DSN, so names in it prove nothing.
    said = re.sub(r"connection to server (at|on socket) \S+( \(\S+\))?", "", str(error))
    if _names_role(error, given, said) and _FULL not in said:
        return CredentialsRefusedError
    if any(sign in said for sign in _REFUSALS):
        return CredentialsRefusedError
    if error.pgconn is not None and error.pgconn.needs_password:
        return CredentialsRefusedError
    if any(sign in said for sign in _TAKES_NO_WRITES):
        return ReadOnlyServerError
    hosts = [host for host in str(given.get("host") or "").split(",") if not host.startswith(("/", "@"))]
    return HostUnknownError if none_exists(hosts) else UnavailableError


def _names_role(error: psycopg.Error, given: Mapping[str, Any], said: str) -> bool:
    role = given.get("user") or (error.pgconn and error.pgconn.user.decode())
    return bool(role) and re.search(rf"[{_QUOTES}]\s?{re.escape(str(role))}\s?[{_QUOTES}]", said) is not None
