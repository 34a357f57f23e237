"""`[postgres] login`: each connection logs in with a password that was made for it, over TLS."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from db.connection import connect
from db.migrate import current
from service.errors import CredentialsRefusedError, UnavailableError
from service.settings import PostgresSettings
from tests.support.secured.postgres import SecuredPostgres
from tests.support.secured.tokens import install_plugin

FIRST, SECOND = "hidden-first-Jd7", "hidden-second-Lx5"
PLUGIN = """
from pathlib import Path

def password(host, port, user):
    return Path({file!r}).read_text()
"""


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredPostgres]:
    """A server with a login."""
    server = SecuredPostgres(tmp_path_factory.mktemp("tls"))
    server.start()
    server.add_login("me", FIRST, "pg_monitor")
    yield server
    server.destroy()


def test_a_password_is_made_anew_for_each_connection(
    secured: SecuredPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = tmp_path / "newest"
    newest.write_text(FIRST)
    install_plugin(tmp_path, PLUGIN.format(file=str(newest)), "newest", "postgres", "password")
    monkeypatch.syspath_prepend(tmp_path)
    settings = PostgresSettings(dsn=SecretStr(secured.secured_dsn("me", "of-the-dsn")), login="newest")
    with connect(settings, "login") as connection:
        ssl = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
        assert connection.execute(ssl).fetchall() == [(True,)]
    # As `outbox-migrate` asks: with all settings, not with the DSN alone.
    assert current(settings) is None
    secured.change_password("me", SECOND)
    with pytest.raises(CredentialsRefusedError) as refused, connect(settings, "login"):
        pass
    assert FIRST not in str(refused.value)
    newest.write_text(SECOND)
    with connect(settings, "login") as connection:
        assert connection.execute("SELECT current_user").fetchall() == [("me",)]
    newest.unlink()
    with pytest.raises(UnavailableError, match="gave no password: FileNotFoundError"), connect(settings, "x"):
        pass
