"""`[postgres] login`: a plugin makes the password of each connection, and none is told in clear to another machine."""

from pathlib import Path

import pytest
from pydantic import SecretStr

from db.connection import connect
from service.errors import SettingsError, UnavailableError
from service.logins.postgres import by_login
from service.settings import PostgresSettings
from tests.support.secured.tokens import install_plugin

MADE = """
def password(host, port, user):
    return f"{user} of {host}:{port}"
"""
FAILS = """
def password(host, port, user):
    raise TimeoutError("no answer\\nsecond line")
"""
PANICS = """
class PanicException(BaseException):
    pass

def password(host, port, user):
    raise PanicException("no answer\\nsecond line")
"""
REMOTE = "postgresql://me@db.example:6543/outbox"


def settings(dsn: str, login: str = "made") -> PostgresSettings:
    return PostgresSettings(dsn=SecretStr(dsn), login=login)


@pytest.fixture(autouse=True)
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three of them."""
    install_plugin(tmp_path, MADE, "made", "postgres", "password")
    install_plugin(tmp_path, FAILS, "fails", "postgres", "password")
    install_plugin(tmp_path, PANICS, "panics", "postgres", "password")
    monkeypatch.syspath_prepend(tmp_path)


def test_the_password_is_of_the_server_and_the_user_that_the_dsn_names() -> None:
    assert by_login(settings(f"{REMOTE}?sslmode=verify-full")) == {"password": "me of db.example:6543"}
    assert by_login(PostgresSettings(dsn=SecretStr(REMOTE))) == {}


@pytest.mark.parametrize(
    "mode",
    [
        "",
        "disable",
        "prefer",
        "require",
        "require&sslrootcert=ca.pem",
        "verify-ca",
        "verify-ca&sslrootcert=ca.pem",
    ],
)
def test_another_machine_is_told_none_without_tls_that_verifies_it(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PGSSLROOTCERT", raising=False)
    named = mode.partition("&")[0] or "prefer"
    with pytest.raises(
        SettingsError, match=f"needs TLS .* sslmode={named} does not. Say sslmode=verify-full"
    ):
        by_login(settings(f"{REMOTE}?sslmode={mode}" if mode else REMOTE))


@pytest.mark.parametrize("mode", ["sslmode=verify-full", "sslrootcert=system"])
def test_a_verified_server_is_told_it(mode: str) -> None:
    assert by_login(settings(f"{REMOTE}?{mode}"))["password"]


@pytest.mark.parametrize("dsn", ["postgresql://me@a,b/outbox?sslmode=require", "dbname=outbox user=me"])
def test_a_dsn_with_no_host_or_several_is_refused(dsn: str) -> None:
    with pytest.raises(SettingsError, match="one host and a user"):
        by_login(settings(dsn))


@pytest.mark.parametrize(("login", "kind"), [("fails", "TimeoutError"), ("panics", "PanicException")])
def test_a_login_that_fails_is_a_server_that_does_not_answer(login: str, kind: str) -> None:
    wanted = rf"Postgres at db\.example:6543/outbox .* gave no password: {kind}: no answer$"
    with (
        pytest.raises(UnavailableError, match=wanted) as raised,
        connect(settings(f"{REMOTE}?sslmode=verify-full", login), "test"),
    ):
        pass
    assert raised.value.__suppress_context__


def test_an_unknown_login_names_those_that_there_are() -> None:
    with pytest.raises(
        SettingsError, match="'aws-rds', 'azure', 'fails', 'google-cloud-sql', 'made', 'panics'"
    ):
        by_login(settings(f"{REMOTE}?sslmode=verify-full", "aws"))


@pytest.mark.parametrize("source", ["variable", "service", "service of the dsn"])
def test_the_environments_authorities_verify_no_server_of_a_dsn_that_names_others(
    source: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    dsn = "host=db.example user=u sslrootcert=/x.pem"
    if source == "variable":
        monkeypatch.setenv("PGSSLROOTCERT", "system")
    else:
        monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))
        (tmp_path / "services").write_text("[outbox]\nsslrootcert=system\n", "utf-8")
        if source == "service":
            monkeypatch.setenv("PGSERVICE", "outbox")
        else:
            dsn += " service=outbox"
    with pytest.raises(SettingsError, match="sslmode=prefer does not"):
        by_login(settings(dsn))
    monkeypatch.setenv("PGSSLMODE", "verify-full")
    assert by_login(settings(dsn))["password"]


def test_the_password_is_of_the_server_that_a_service_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))
    (tmp_path / "services").write_text("[outbox]\nhost=db.example\nsslmode=verify-full\n", "utf-8")
    assert by_login(settings("service=outbox user=me")) == {"password": "me of db.example:5432"}
