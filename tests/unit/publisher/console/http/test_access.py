"""Who may see the console, and what its answers forbid. With a real server, and no Postgres behind it."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError
from structlog.testing import capture_logs

from publisher.console.http.access import SECURITY, is_valid, new_cookie
from publisher.console.http.connections import MOST_CONNECTIONS
from publisher.console.http.token_throttle import (
    MOST_A_SECOND,
    WRONG_S,
    TokenThrottle,
    TooManyWrongTokensError,
)
from publisher.console.server import served, serving
from service.errors import SettingsError
from service.settings import ConsoleSettings, PostgresSettings, Settings
from tests.support.console import Console, console_of
from tests.support.pages.connections import accepted, silent_clients
from tests.support.waiting import wait_until

TOKEN = "correct horse battery"


def settings() -> Settings:
    """Nobody listens there."""
    return Settings.model_construct(
        postgres=PostgresSettings(dsn=SecretStr("postgresql://127.0.0.1:1/outbox"), connect_timeout_s=1)
    )


@pytest.fixture(scope="module")
def open_console() -> Iterator[Console]:
    with console_of(settings()) as found:
        yield found


@pytest.fixture(scope="module")
def locked_console() -> Iterator[Console]:
    with console_of(settings(), token=TOKEN, host="127.0.0.1") as found:
        yield found


def test_every_answer_has_the_policy(open_console: Console) -> None:
    for path in ("/", "/static/console.css", "/nowhere", "/session?key=x"):
        headers = open_console.get(path).headers
        for name, value in SECURITY.items():
            assert headers[name.lower()] == value, path
    assert "default-src 'none'" in SECURITY["Content-Security-Policy"]
    assert "unsafe" not in SECURITY["Content-Security-Policy"]


@pytest.mark.guarantee(134)
def test_nothing_can_be_written(open_console: Console) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        assert open_console.get("/lanes", method=method).status == 405


def test_a_page_says_that_postgres_is_away(open_console: Console) -> None:
    answer = open_console.get("/lanes")
    assert answer.status == 503
    assert "127.0.0.1:1/outbox cannot be used" in answer.text
    assert open_console.first_event("/lanes")[0] == "trouble"


def test_what_does_not_exist_is_not_found(open_console: Console) -> None:
    for path in ("/nowhere", "/static/../app.py", "/static/app.py", "/live?page=/runs"):
        assert open_console.get(path).status == 404, path


def test_without_a_login_it_answers_by_this_hosts_name_only(open_console: Console) -> None:
    assert open_console.get("/static/console.js", Host="localhost:80").status == 200
    assert open_console.get("/static/console.js", Host="[::1]").status == 200
    assert open_console.get("/static/console.js", Host="evil.example").status == 403


@pytest.mark.parametrize(
    ("site", "mode", "dest", "status"),
    [
        ("cross-site", "no-cors", "image", 403),
        ("cross-site", "cors", "empty", 403),
        ("cross-site", "navigate", "iframe", 403),
        ("cross-site", "navigate", "document", 200),
        ("same-site", "no-cors", "image", 403),
        ("same-site", "cors", "empty", 403),
        ("same-site", "navigate", "iframe", 403),
        ("same-site", "navigate", "document", 200),
        ("same-origin", "cors", "empty", 200),
        ("none", "navigate", "document", 200),
    ],
)
def test_another_site_s_page_may_link_here_and_no_more(
    open_console: Console, site: str, mode: str, dest: str, status: int
) -> None:
    """It could not read the answer, but have Postgres and Kafka read, and measure how long that takes."""
    sent = {"Sec_Fetch_Site": site, "Sec_Fetch_Mode": mode, "Sec_Fetch_Dest": dest}
    assert open_console.get("/static/icon.svg", **sent).status == status


@pytest.mark.parametrize(
    ("public_host", "host", "forwarded", "status"),
    [
        (
            "",
            "127.0.0.1:8181",
            "ops.example",
            200,
        ),  # as nginx asks, unless it is told to pass on the browser's
        ("", "localhost", "", 200),
        ("", "ops.example", "", 403),
        ("", "", "", 403),
        ("", "attacker.example:8181", "127.0.0.1:8181", 403),
        ("Ops.example", "127.0.0.1:8181", "", 200),
        ("Ops.example", "ops.Example", "", 200),
        ("Ops.example", "ops.example:443", "", 200),
        ("Ops.example", "attacker.example:8181", "ops.example", 403),
        ("Ops.example", "ops.example.attacker.example", "", 403),
        ("[2001:db8::1]", "[2001:DB8::1]:443", "", 200),
    ],
)
def test_behind_a_proxy_it_answers_by_a_local_name_and_the_public_one_only(
    public_host: str, host: str, forwarded: str, status: int
) -> None:
    """A name of another site that resolves to this host would lead that site's page past the proxy."""
    with console_of(settings(), behind_proxy=True, public_host=public_host) as found:
        answer = found.get("/static/console.js", Host=host, X_Forwarded_Host=forwarded)
    assert answer.status == status
    assert ("public_host" in answer.text) == (status == 403)


def test_with_a_token_any_name_is_answered(locked_console: Console) -> None:
    assert locked_console.get("/login", Host="ops.example").status == 200


def test_without_the_token_nothing_is_shown(locked_console: Console) -> None:
    for path in ("/", "/lanes", "/session?key=x"):
        answer = locked_console.get(path)
        assert (answer.status, answer.headers["location"]) == (303, "/login"), path
    assert locked_console.get("/live?page=/").status == 401
    assert locked_console.get("/login").status == 200
    for given, status in (("Bearer wrong", 401), (f"Basic {TOKEN}", 303), ("Bearer", 401)):
        assert locked_console.get("/", Authorization=given).status == status
    for given in ("outbox_console=1", "outbox_console=9999999999.0", "outbox_console=²."):
        assert locked_console.get("/", Cookie=given.encode().decode("latin-1")).status == 303


def test_the_token_logs_in(locked_console: Console) -> None:
    wrong = locked_console.get("/login", method="POST", body="token=wrong")
    assert wrong.status == 403
    assert "That is not the token." in wrong.text
    assert "set-cookie" not in wrong.headers
    right = locked_console.get("/login", method="POST", body=f"token={TOKEN.replace(' ', '+')}")
    assert (right.status, right.headers["location"]) == (303, "/")
    cookie = right.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert TOKEN not in cookie
    # Postgres is away; that it says so means that it let us in.
    assert locked_console.get("/lanes", Cookie=cookie.split(";")[0]).status == 503
    assert locked_console.get("/lanes", Authorization=f"Bearer {TOKEN}").status == 503


def test_a_login_ends_and_does_not_outlive_its_token() -> None:
    mine, other = ConsoleSettings(token=SecretStr(TOKEN)), ConsoleSettings(token=SecretStr(TOKEN + "!"))
    value, lasts_s = new_cookie(mine, 1_000.0)
    assert is_valid(mine, value, 1_000.0 + lasts_s - 1)
    assert not is_valid(mine, value, 1_000.0 + lasts_s + 1)
    assert not is_valid(other, value, 1_000.0)
    until, _, signature = value.partition(".")
    assert not is_valid(mine, f"{int(until) + 1}.{signature}", 1_000.0)


def test_the_token_s_file_is_read_anew(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    console = ConsoleSettings(token_file=file)
    cookie, _ = new_cookie(console, 1_000.0)
    assert console.is_token(TOKEN)
    assert is_valid(console, cookie, 1_000.0)
    file.write_text("another one of today\n")
    assert console.is_token("another one of today")
    assert not console.is_token(TOKEN)
    assert not is_valid(console, cookie, 1_000.0)
    assert is_valid(console, new_cookie(console, 1_000.0)[0], 1_000.0)
    for unusable in ("", "short"):
        file.write_text(unusable)
        assert not console.is_token(unusable)
        assert not is_valid(console, new_cookie(console, 1_000.0)[0], 1_000.0)
    file.unlink()
    assert not console.is_token("")


@pytest.mark.parametrize("by", ["cookie", "bearer"])
def test_a_live_page_does_not_outlive_its_login(tmp_path: Path, by: str) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    with console_of(settings(), token_file=str(file), refresh_s=0.2) as found:
        login = found.get("/login", method="POST", body=f"token={TOKEN.replace(' ', '+')}")
        cookie = login.headers["set-cookie"].partition(";")[0]
        sent = {"Cookie": cookie} if by == "cookie" else {"Authorization": f"Bearer {TOKEN}"}
        with found.watching("/lanes", **sent) as lines:
            assert "event: trouble\n" in iter(lines)
            file.write_text("another one of today")
            assert not any(line.startswith("event") for line in lines), "it ends"
        assert found.get("/live?page=/lanes", **sent).status == 401


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"host": "0.0.0.0"}, "is not of this host alone"),
        ({"host": "ops.example"}, "is not of this host alone"),
        ({"token": "short"}, "fewer than 16"),
        ({"path_prefix": "ops"}, "path_prefix"),
        ({"public_host": "https://ops.example"}, "public_host"),
        ({"public_host": "ops.example:443"}, "public_host"),
        ({"dsn": "postgresql://[x"}, "neither a libpq URI"),
        ({"token_file": "/nonexistent/token"}, "cannot be read"),
    ],
)
def test_settings_that_would_open_it_to_others_are_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        ConsoleSettings.model_validate(wrong)


def test_settings_that_are_right() -> None:
    assert ConsoleSettings().port == 0
    assert ConsoleSettings(host="0.0.0.0", token=SecretStr(TOKEN)).is_token(TOKEN)
    assert ConsoleSettings(host="::1").is_local
    assert ConsoleSettings(token=SecretStr("")).token is None
    assert not ConsoleSettings().is_token("")
    assert TOKEN not in repr(ConsoleSettings(token=SecretStr(TOKEN)))


@pytest.mark.guarantee(135)
def test_a_port_that_is_taken_stops_the_command_and_not_the_publisher() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        chosen = ConsoleSettings(port=taken.getsockname()[1])
        mine = settings().model_copy(update={"console": chosen})
        with pytest.raises(SettingsError, match="cannot listen on"), serving(mine):
            pass
        began = time.monotonic()
        with served(mine):
            assert time.monotonic() - began < 1
        assert time.monotonic() - began < 2


def test_it_ends_though_somebody_watches(open_console: Console) -> None:
    with console_of(settings()) as found:
        watching = threading.Thread(target=found.first_event, args=("/",))
        with socket.create_connection(("127.0.0.1", found.port)) as idle:
            idle.sendall(b"GET /live?page=/ HTTP/1.1\r\nHost: localhost\r\n\r\n")
            watching.start()
            watching.join(30)
            began = time.monotonic()
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("by", ["login", "bearer"])
def test_wrong_tokens_are_slow_and_hold_up_no_right_one(locked_console: Console, by: str) -> None:
    def guess(token: str) -> int:
        if by == "login":
            return locked_console.get("/login", method="POST", body=f"token={token.replace(' ', '+')}").status
        return locked_console.get("/lanes", Authorization=f"Bearer {token}").status

    wrong, right = {"login": (403, 303), "bearer": (401, 503)}[by]
    with ThreadPoolExecutor(40) as guessers:
        began = time.monotonic()
        guesses = [guessers.submit(guess, "wrong") for _ in range(80)]
        assert guess(TOKEN) == right
        assert {each.result() for each in guesses} == {wrong}
        # Twice as many as at a time.
        assert time.monotonic() - began >= 2 * WRONG_S


def test_who_does_not_wait_for_the_answers_is_not_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    async def unslept(_seconds: float) -> None:
        """As for somebody who has left."""

    monkeypatch.setattr("asyncio.sleep", unslept)
    clock = [0.0]
    monkeypatch.setattr(
        "publisher.console.http.token_throttle.time", SimpleNamespace(monotonic=lambda: clock[0])
    )
    throttle = TokenThrottle(ConsoleSettings(token=SecretStr(TOKEN)))

    async def tries() -> int:
        looked_at = 0
        for _ in range(10 * MOST_A_SECOND):
            try:
                assert not await throttle.is_token("wrong", "")
                looked_at += 1
            except TooManyWrongTokensError:
                pass
        return looked_at

    with capture_logs() as logged:
        assert asyncio.run(tries()) == MOST_A_SECOND
        clock[0] = 1.0
        assert asyncio.run(tries()) == MOST_A_SECOND
    assert [line["event"] for line in logged] == ["console_wrong_token"] * 2


def test_a_flood_of_wrong_tokens_locks_out_no_address_that_has_logged_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def unslept(_seconds: float) -> None:
        """As for somebody who has left."""

    monkeypatch.setattr("asyncio.sleep", unslept)
    monkeypatch.setattr("publisher.console.http.token_throttle.time", SimpleNamespace(monotonic=lambda: 0.0))
    throttle = TokenThrottle(ConsoleSettings(token=SecretStr(TOKEN)))

    async def flood(client: str) -> None:
        for _ in range(2 * MOST_A_SECOND):
            await throttle.is_token("wrong", client)

    async def log_in(client: str, times: int) -> None:
        for _ in range(times):
            assert await throttle.is_token(TOKEN, client)

    with capture_logs():
        asyncio.run(log_in("script", 1))
        with pytest.raises(TooManyWrongTokensError):
            asyncio.run(flood("stranger"))
        asyncio.run(log_in("script", 2 * MOST_A_SECOND))
        # Nobody finds out the right token by guessing on, and a known address may not guess for ever either.
        with pytest.raises(TooManyWrongTokensError):
            asyncio.run(log_in("another", 1))
        with pytest.raises(TooManyWrongTokensError):
            asyncio.run(flood("script"))


def test_who_saw_what_is_logged_without_the_query(open_console: Console) -> None:
    with capture_logs() as logged:
        open_console.get("/session?key=secret-key")
        open_console.get("/static/console.css")
        open_console.get("/lanes", Host="evil.example")
        wait_until(lambda: logged, "the line")
    assert [(line["event"], line["path"], line["status"], line["client"]) for line in logged] == [
        ("console_request", "/session", 503, "127.0.0.1")
    ]
    assert "secret-key" not in str(logged)


def test_silent_connections_keep_nobody_out_and_are_bounded() -> None:
    with console_of(settings()) as found:
        clients: list[socket.socket] = []
        try:
            for _ in range(4):
                clients += silent_clients(found.port, 300)
                assert found.get("/static/console.css").status == 200
                assert accepted(found.port) <= MOST_CONNECTIONS
        finally:
            for client in clients:
                client.close()


def test_requests_that_never_end_keep_nobody_out() -> None:
    with console_of(settings(), token=TOKEN) as found:
        clients = silent_clients(found.port, 2 * MOST_CONNECTIONS)
        try:
            for client in clients:
                with suppress(OSError):
                    client.sendall(
                        b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\ntok"
                    )
            assert found.get("/login").status == 200
        finally:
            for client in clients:
                client.close()


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"GET / HT",
        b"GET /static/icon.svg HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /login HTTP/1.1\r\nContent-Length: 9\r\n\r\n",
    ],
)
def test_a_connection_that_says_nothing_more_is_closed(said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("publisher.console.http.connections.REQUEST_S", 0.2)
    with (
        console_of(settings()) as found,
        socket.create_connection(("127.0.0.1", found.port), timeout=60) as client,
    ):
        client.sendall(said)
        with suppress(ConnectionResetError):
            while client.recv(10_000):
                pass
