"""A login that is refused, in whatever language, is told from a server that does not answer and from a name that leads nowhere."""

import socket

import psycopg
import pytest
from pydantic import SecretStr

from db.refused import failed_connection
from service.errors import CredentialsRefusedError, HostUnknownError, ReadOnlyServerError, UnavailableError
from service.settings import PostgresSettings

AT = 'connection failed: connection to server at "job" (10.0.0.1), port 5432 failed: '


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ('FATAL:  password authentication failed for user "job"', CredentialsRefusedError),
        ("FATAL:  Passwort-Authentifizierung für Benutzer »job« fehlgeschlagen", CredentialsRefusedError),
        (
            "FATAL:  authentification par mot de passe échouée pour l'utilisateur « job »",
            CredentialsRefusedError,
        ),
        ('FATAL:  role "job" does not exist', CredentialsRefusedError),
        ('FATAL:  role "job" is not permitted to log in', CredentialsRefusedError),
        ('FATAL:  no pg_hba.conf entry for host "1.2.3.4", user "x", database "y"', CredentialsRefusedError),
        (
            'FATAL:  permission denied for database "outbox"\nDETAIL:  User does not have CONNECT privilege.',
            CredentialsRefusedError,
        ),
        ("channel binding required, but SSL not in use", CredentialsRefusedError),
        (
            'authentication method requirement "scram-sha-256" failed: server requested a hashed password',
            CredentialsRefusedError,
        ),
        ('FATAL:  database "outbox" is not currently accepting connections', UnavailableError),
        ("SSL error: certificate verify failed", CredentialsRefusedError),
        ("server does not support SSL, but SSL was required", CredentialsRefusedError),
        ('FATAL:  too many connections for role "job"', UnavailableError),
        ("FATAL:  sorry, too many clients already", UnavailableError),
        ("FATAL:  the database system is starting up", UnavailableError),
        ("SSL SYSCALL error: EOF detected", UnavailableError),
        ("session is read-only", ReadOnlyServerError),
        ("server is in hot standby mode", ReadOnlyServerError),
        ("server is not in hot standby mode", UnavailableError),
        (
            "Connection refused\n\tIs the server running on that host and accepting TCP/IP connections?",
            UnavailableError,
        ),
    ],
)
def test_what_the_server_says_decides(said: str, kind: type[UnavailableError]) -> None:
    """The host has the role's name here, as in many a compose file."""
    settings = PostgresSettings(dsn=SecretStr("postgresql://job:pw@127.0.0.1/outbox"))
    assert failed_connection(settings, psycopg.OperationalError(AT + said)) is kind


@pytest.mark.parametrize(
    ("code", "kind"), [(socket.EAI_NONAME, HostUnknownError), (socket.EAI_AGAIN, UnavailableError)]
)
def test_a_name_that_does_not_exist_is_told_from_a_name_server_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, code: int, kind: type[UnavailableError]
) -> None:
    def resolve(name: str, _: None) -> list[str]:
        if name == "known":
            return ["10.0.0.1"]
        raise socket.gaierror(code, "no such name")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    error = psycopg.OperationalError("failed to resolve host")
    for hosts, expected in (("nosuch", kind), ("nosuch,none", kind), ("nosuch,known", UnavailableError)):
        settings = PostgresSettings(dsn=SecretStr(f"postgresql://job@{hosts}/outbox"))
        assert failed_connection(settings, error) is expected
