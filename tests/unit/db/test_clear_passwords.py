"""Whoever answers for a Postgres on another machine is not told the password as it is."""

import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from psycopg.conninfo import make_conninfo
from pydantic import SecretStr
from structlog.testing import capture_logs

from db.connection import connect
from service.errors import CredentialsRefusedError, UnavailableError
from service.settings import PostgresSettings

PASSWORD = "hidden-word-Zk8"


class Impostor:
    """Says that it has no TLS, and asks for the password itself."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.told = b""
        self._thread = threading.Thread(target=self._answer)
        self._thread.start()

    def _answer(self) -> None:
        connection, _ = self._listening.accept()
        with connection:
            connection.settimeout(10)
            connection.recv(8)  # SSLRequest
            connection.sendall(b"N")
            connection.recv(4_096)  # the startup packet
            connection.sendall(b"R" + struct.pack("!ii", 8, 3))  # AuthenticationCleartextPassword
            self.told = connection.recv(4_096)

    def end(self) -> None:
        self._thread.join()
        self._listening.close()


@pytest.fixture
def impostor() -> Iterator[Impostor]:
    """What somebody on the way puts there."""
    found = Impostor()
    yield found
    found.end()


def test_an_impostor_of_another_machine_gets_no_password(
    impostor: Impostor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.settings.dsn.is_local", lambda _host: False)
    dsn = f"postgresql://me:{PASSWORD}@127.0.0.1:{impostor.port}/outbox?gssencmode=disable"
    with (
        pytest.raises(CredentialsRefusedError, match="over TLS alone") as raised,
        connect(PostgresSettings(dsn=SecretStr(dsn)), "test"),
    ):
        pass
    impostor.end()
    assert PASSWORD.encode() not in impostor.told
    assert PASSWORD not in str(raised.value)


@pytest.mark.parametrize("weak", ["service", "sslrootcert"])
def test_nor_does_one_that_a_service_names_or_that_other_authorities_would_verify(
    impostor: Impostor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, weak: str
) -> None:
    monkeypatch.setattr("service.settings.dsn.is_local", lambda _host: False)
    server: dict[str, str | int] = {
        "host": "127.0.0.1",
        "port": impostor.port,
        "user": "me",
        "password": PASSWORD,
        "dbname": "outbox",
    }
    if weak == "service":
        monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))
        (tmp_path / "services").write_text(
            "\n".join(("[ob]", *(f"{name}={value}" for name, value in server.items()))), "utf-8"
        )
        dsn = "service=ob gssencmode=disable"
    else:
        monkeypatch.setenv("PGSSLROOTCERT", "system")
        dsn = make_conninfo("", **server, gssencmode="disable", sslrootcert=str(tmp_path / "ca.pem"))
    with (
        capture_logs() as logged,
        pytest.raises(CredentialsRefusedError, match="over TLS alone"),
        connect(PostgresSettings(dsn=SecretStr(dsn)), "test"),
    ):
        pass
    impostor.end()
    assert PASSWORD.encode() not in impostor.told
    assert [line["event"] for line in logged] == ["connection_unprotected"]


@pytest.mark.parametrize("allowed", ["local", "require_auth=password"])
def test_a_server_of_this_machine_and_whoever_is_named_may_ask(
    impostor: Impostor, monkeypatch: pytest.MonkeyPatch, allowed: str
) -> None:
    dsn = f"postgresql://me:{PASSWORD}@127.0.0.1:{impostor.port}/outbox?gssencmode=disable"
    if allowed != "local":
        monkeypatch.setattr("service.settings.dsn.is_local", lambda _host: False)
        dsn += f"&{allowed}"
    with pytest.raises(UnavailableError), connect(PostgresSettings(dsn=SecretStr(dsn)), "test"):
        pass
    impostor.end()
    assert PASSWORD.encode() in impostor.told


def test_a_server_that_gives_no_connection_is_named_if_it_is_reached_unprotected(impostor: Impostor) -> None:
    dsn = SecretStr(f"host=0.0.0.0 port={impostor.port} user=u password={PASSWORD} dbname=d sslmode=prefer")
    with capture_logs() as logged, pytest.raises(UnavailableError):
        connect(PostgresSettings(dsn=dsn), "test")
    assert [(line["event"], line["server"]) for line in logged] == [("connection_unprotected", "Postgres")]
    assert PASSWORD not in str(logged)
