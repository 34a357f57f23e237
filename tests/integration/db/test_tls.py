"""Postgres over TLS: `sslmode=verify-full` in the DSN refuses a server that cannot prove its name, and says which settings count."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from pydantic import SecretStr

from db.connection import connect
from service.errors import CredentialsRefusedError, UnavailableError
from service.settings import PostgresSettings
from tests.support.secured.authority import Authority
from tests.support.secured.postgres import SecuredPostgres

PASSWORD = "hidden-word-Qp4"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredPostgres]:
    """A server with a login."""
    server = SecuredPostgres(tmp_path_factory.mktemp("tls"))
    server.start()
    server.add_login("me", PASSWORD, "pg_monitor")
    yield server
    server.destroy()


def settings(secured: SecuredPostgres, **changed: str) -> PostgresSettings:
    return PostgresSettings(dsn=SecretStr(secured.secured_dsn("me", PASSWORD, **changed)))


def test_a_server_that_proves_its_name_is_talked_to_over_tls(secured: SecuredPostgres) -> None:
    with connect(settings(secured), "tls test") as connection:
        assert connection.execute("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()").fetchall() == [
            (True,)
        ]


@pytest.mark.parametrize("wrong", ["another authority", "no authority", "another name", "no TLS"])
def test_any_other_is_refused_with_the_settings_that_count_and_without_the_password(
    secured: SecuredPostgres, tmp_path: Path, wrong: str
) -> None:
    changed = {
        "another authority": {"sslrootcert": str(Authority(tmp_path).certificate)},
        "no authority": {"sslrootcert": str(tmp_path / "none.pem")},
        "another name": {"host": "localhost", "hostaddr": "127.0.0.1"},
        "no TLS": {"sslmode": "disable"},
    }[wrong]
    told = r"\[postgres\] dsn \(OUTBOX_POSTGRES__DSN\)" + (
        "" if wrong == "no TLS" else ".* sslrootcert .* host"
    )
    with (
        pytest.raises(CredentialsRefusedError, match=told) as raised,
        connect(settings(secured, **changed), "tls test"),
    ):
        pass
    assert PASSWORD not in str(raised.value)


@pytest.mark.parametrize("user", ["me", "nobody-knows-me"])
def test_a_wrong_password_and_an_unknown_role_are_told_from_a_server_that_is_away(
    secured: SecuredPostgres, user: str
) -> None:
    refused = PostgresSettings(dsn=SecretStr(secured.secured_dsn(user, "wrong")))
    with pytest.raises(CredentialsRefusedError), connect(refused, "tls test"):
        pass


def test_a_login_that_has_all_its_connections_is_not_refused_for_good(secured: SecuredPostgres) -> None:
    secured.add_login("full", PASSWORD, "pg_monitor")
    with psycopg.connect(secured.dsn(), autocommit=True) as owner:
        owner.execute('ALTER ROLE "full" CONNECTION LIMIT 0')
    full = PostgresSettings(dsn=SecretStr(secured.secured_dsn("full", PASSWORD)))
    with pytest.raises(UnavailableError) as raised, connect(full, "tls test"):
        pass
    assert type(raised.value) is UnavailableError
