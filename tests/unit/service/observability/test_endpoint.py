"""The endpoint answers every request by itself, whatever another one meets, and says clearly what it cannot do."""

import asyncio
import http.client
import json
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

import psutil
import pytest
from prometheus_client import CollectorRegistry, Counter

from devstack.processes.port import ReservedPort
from service.errors import SettingsError
from service.observability import endpoint
from service.observability.http_server import MOST_CONNECTIONS, HttpResponse, Page
from service.observability.verdict import HealthVerdict
from service.probe import probe
from service.settings import MetricsSettings
from tests.support.pages.connections import accepted, silent_clients
from tests.support.waiting import wait_until

ANOTHER = "[metrics] port (OUTBOX_METRICS__PORT)"


@contextmanager
def serving(pages: Mapping[str, Page], host: str = "127.0.0.1") -> Iterator[int]:
    with endpoint.served(host, 0, pages, ANOTHER) as port:
        yield port


def ask(port: int, path: str, method: str = "GET") -> tuple[int, str, str]:
    """Status, content type and body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request(method, path)
    answer = connection.getresponse()
    found = answer.status, answer.headers["Content-Type"], answer.read().decode()
    connection.close()
    return found


def service(healthy: HealthVerdict, ready: HealthVerdict) -> dict[str, Page]:
    registry = CollectorRegistry()
    Counter("outbox_things", "Things.", registry=registry).inc(3)
    return endpoint.pages([registry], lambda: healthy, lambda: ready)


def test_the_three_pages_and_nothing_else() -> None:
    with serving(
        service(HealthVerdict([]), HealthVerdict(["lane 1 is stopped: gone"], {"lanes": [1]}))
    ) as port:
        status, content_type, body = ask(port, "/metrics?name=x")
        assert (status, content_type.split(";")[0]) == (200, "text/plain")
        assert "outbox_things_total 3.0\n" in body
        assert ask(port, "/healthz") == (200, "application/json", '{"healthy":true,"reasons":[]}\n')
        status, content_type, body = ask(port, "/readyz")
        assert (status, content_type) == (503, "application/json")
        assert json.loads(body) == {"ready": False, "reasons": ["lane 1 is stopped: gone"], "lanes": [1]}
        assert ask(port, "/")[::2] == (404, "there is no / here, only /healthz, /metrics, /readyz\n")
        assert ask(port, "/healthz", "POST")[0] == 501


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        (
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=1.0.0;q=0.3",
            "application/openmetrics-text",
        ),
        ("text/plain;version=0.0.4;q=0.3,*/*;q=0.1", "text/plain"),
        ("text/plain; version=one", "text/plain"),
        ("application/openmetrics-text; version=1.x", "application/openmetrics-text"),
        ("application/openmetrics-text; version=9\nX-Forged: yes", "application/openmetrics-text"),
    ],
)
def test_a_stranger_s_accept_chooses_one_of_two_forms_and_fails_nothing(
    accept: str, content_type: str
) -> None:
    answer = service(HealthVerdict([]), HealthVerdict([]))["/metrics"](accept)
    assert (answer.status, answer.content_type.split(";")[0]) == (200, content_type)
    assert answer.content_type.isprintable()
    assert b"outbox_things_total 3.0\n" in answer.body


def test_head_is_the_status_without_the_body() -> None:
    with serving(service(HealthVerdict([]), HealthVerdict(["why"]))) as port:
        assert ask(port, "/readyz", "HEAD") == (503, "application/json", "")
        assert ask(port, "/nowhere", "HEAD")[0] == 404


def test_a_page_that_fails_is_a_500_and_the_endpoint_continues() -> None:
    def broken(_accept: str) -> HttpResponse:
        raise ZeroDivisionError

    with serving(service(HealthVerdict([]), HealthVerdict([])) | {"/broken": broken}) as port:
        status, _, body = ask(port, "/broken")
        assert (status, "ZeroDivisionError" in body) == (500, True)
        assert ask(port, "/healthz")[0] == 200


@pytest.mark.guarantee(133)
def test_requests_that_hang_hold_up_neither_the_others_nor_the_end() -> None:
    entered, release = threading.Event(), threading.Event()

    def hanging(_accept: str) -> HttpResponse:
        entered.set()
        release.wait()
        return HttpResponse(200, "text/plain", b"")

    try:
        with serving(service(HealthVerdict([]), HealthVerdict([])) | {"/hanging": hanging}) as port:
            silent = socket.create_connection(("127.0.0.1", port))
            waiting = http.client.HTTPConnection("127.0.0.1", port)
            waiting.request("GET", "/hanging")
            assert entered.wait(30)
            assert ask(port, "/healthz")[0] == 200
        silent.close()
        waiting.close()
    finally:
        release.set()


def test_no_page_is_made_for_whoever_has_gone() -> None:
    """Each asks for a form of its own, so that none gets another one's answer."""
    entered, release = threading.Event(), threading.Event()
    made: list[str] = []

    def slow(accept: str) -> HttpResponse:
        made.append(accept)
        entered.set()
        release.wait(30)
        return HttpResponse(200, "text/plain", b"")

    strangers = 2 * MOST_CONNECTIONS
    try:
        with serving({"/slow": slow}) as port:
            for number in range(strangers):
                with socket.create_connection(("127.0.0.1", port)) as stranger:
                    stranger.sendall(b"GET /slow HTTP/1.1\r\nAccept: text/%d\r\n\r\n" % number)
                    assert entered.wait(30)
            waiting = http.client.HTTPConnection("127.0.0.1", port)
            waiting.request("GET", "/slow", headers={"Accept": "text/mine"})

            def came_through() -> bool:
                with suppress(ConnectionError):
                    return ask(port, "/nowhere")[0] == 404
                return False

            wait_until(came_through, "a request behind all of these")
            release.set()
            assert waiting.getresponse().status == 200
            waiting.close()
    finally:
        release.set()
    assert made[-1] == "text/mine"
    assert len(made) < strangers


def test_silent_clients_take_no_place_from_a_probe_however_many_there_are() -> None:
    with serving(service(HealthVerdict([]), HealthVerdict([]))) as port:
        clients: list[socket.socket] = []
        try:
            for _ in range(5):
                clients += silent_clients(port, MOST_CONNECTIONS)
                assert ask(port, "/healthz")[0] == 200
            assert accepted(port) <= MOST_CONNECTIONS + 1
        finally:
            for client in clients:
                client.close()


def test_a_probe_is_answered_while_strangers_connect_as_fast_as_they_can() -> None:
    ended = threading.Event()

    def knock(port: int) -> None:
        while not ended.is_set():
            for client in silent_clients(port, 50):
                # An end without TIME_WAIT, or this host has no port left.
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.close()

    with serving(service(HealthVerdict([]), HealthVerdict([]))) as port:
        strangers = [threading.Thread(target=knock, args=(port,)) for _ in range(3)]
        for stranger in strangers:
            stranger.start()
        try:
            assert [ask(port, "/healthz")[0] for _ in range(50)] == [200] * 50
        finally:
            ended.set()
            for stranger in strangers:
                stranger.join()


def test_a_stranger_s_connections_take_no_place_of_another_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kubelet's probe has a place, though strangers hold all others with requests, and more of them come before it says what it asks."""
    monkeypatch.setattr("service.observability.http_server.REQUEST_S", 60.0)
    entered, release = threading.Event(), threading.Event()

    def hanging(_accept: str) -> HttpResponse:
        entered.set()
        release.wait()
        return HttpResponse(200, "text/plain", b"")

    stranger, clients = "127.0.0.2", list[socket.socket]()
    try:
        with serving(service(HealthVerdict([]), HealthVerdict([])) | {"/hanging": hanging}) as port:
            clients += silent_clients(port, MOST_CONNECTIONS - 1, stranger)
            for number, client in enumerate(clients):
                client.sendall(b"GET /hanging HTTP/1.1\r\nAccept: text/%d\r\n\r\n" % number)
            assert entered.wait(30)
            (probe_,) = silent_clients(port, 1)
            clients.append(probe_)
            clients += silent_clients(port, 2 * MOST_CONNECTIONS, stranger)
            wait_until(lambda: accepted(port) <= MOST_CONNECTIONS, "room for all of them")
            probe_.settimeout(30)
            probe_.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
            assert probe_.makefile("rb").read().startswith(b"HTTP/1.1 200 OK")
    finally:
        release.set()
        for client in clients:
            client.close()


def test_whoever_does_not_take_the_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.observability.http_server._ANSWER_S", 0.5)

    def large(_accept: str) -> HttpResponse:
        return HttpResponse(200, "text/plain", b"x" * 50_000_000)

    with (
        serving({"/large": large}) as port,
        socket.create_connection(("127.0.0.1", port), timeout=30) as client,
    ):
        client.sendall(b"GET /large HTTP/1.1\r\n\r\n")
        assert client.recv(1) == b"H"
        wait_until(lambda: accepted(port) == 0, "the end of the connection")


def test_no_descriptor_is_left_of_thousands_of_connections() -> None:
    said = [
        b"",
        b"GET /healthz HT",
        b"GET /healthz HTTP/1.1\r\n\r\n",
        b"GET /nowhere HTTP/1.1\r\n\r\n" * 20,
        b"\0" * 40_000,
    ]
    with serving(service(HealthVerdict([]), HealthVerdict([]))) as port:
        assert ask(port, "/healthz")[0] == 200
        before = psutil.Process().num_fds()
        for number in range(3_000):
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                with suppress(OSError):
                    client.sendall(said[number % len(said)])
        wait_until(lambda: psutil.Process().num_fds() <= before, "the end of all connections")


class ScriptedLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock the test sets."""

    _now_s = 0.0

    def time(self) -> float:
        return self._now_s

    def advance(self, to_s: float) -> None:
        def set_clock() -> None:
            self._now_s = to_s

        self.call_soon_threadsafe(set_clock)


@pytest.mark.parametrize("said", [b"", b"GET /healthz HT"], ids=["silent", "a byte at a time"])
def test_a_slow_request_is_cut_off_after_a_second(said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = ScriptedLoop()
    monkeypatch.setattr(asyncio, "new_event_loop", lambda: loop)
    with (
        serving(service(HealthVerdict([]), HealthVerdict([]))) as port,
        socket.create_connection(("127.0.0.1", port)) as client,
    ):
        for number, now_s in enumerate((0.0, 0.5, 0.99)):
            loop.advance(now_s)
            client.sendall(said[number : number + 1])
            # Another one's answer: the loop has met the first one, what it has said, and its own clock.
            assert ask(port, "/healthz")[0] == 200
            client.setblocking(False)
            with pytest.raises(BlockingIOError):  # it is open
                client.recv(1)
        loop.advance(1.01)
        client.settimeout(30)
        with suppress(ConnectionError):
            assert client.recv(1) == b""


def test_requests_of_one_connection_behind_the_first_are_not_read() -> None:
    with (
        serving(service(HealthVerdict([]), HealthVerdict([]))) as port,
        socket.create_connection(("127.0.0.1", port), timeout=30) as client,
    ):
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * 3)
        received = b""
        with suppress(ConnectionResetError):
            while more := client.recv(10_000):
                received += more
        assert received.count(b"HTTP/1.1 200 OK") == 1


def test_a_client_that_has_closed_its_half_gets_its_answer() -> None:
    with (
        serving(service(HealthVerdict([]), HealthVerdict([]))) as port,
        socket.create_connection(("127.0.0.1", port), timeout=30) as client,
    ):
        client.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        client.shutdown(socket.SHUT_WR)
        assert client.makefile("rb").read().startswith(b"HTTP/1.1 200 OK")


@pytest.mark.parametrize("said", [b"nonsense", b"GET /healthz", b"GET //[ HTTP/1.1", b"\xff \xff \xff"])
def test_what_is_no_request_is_answered_with_400(said: bytes) -> None:
    with (
        serving(service(HealthVerdict([]), HealthVerdict([]))) as port,
        socket.create_connection(("127.0.0.1", port), timeout=30) as client,
    ):
        client.sendall(said + b"\r\n\r\n")
        assert client.makefile("rb").read().startswith(b"HTTP/1.1 400 ")


def test_who_asks_for_a_page_that_is_being_made_shares_one_answer() -> None:
    entered, release = threading.Semaphore(0), threading.Event()

    def slow(_accept: str) -> HttpResponse:
        entered.release()
        release.wait()
        return HttpResponse(200, "text/plain", b"")

    waiting = []
    try:
        with serving(service(HealthVerdict([]), HealthVerdict([])) | {"/slow": slow}) as port:
            for _ in range(20):
                waiting.append(http.client.HTTPConnection("127.0.0.1", port, timeout=30))
                waiting[-1].request("GET", "/slow")
            assert entered.acquire(timeout=30)
            assert ask(port, "/healthz")[0] == 200
            release.set()
            assert [each.getresponse().status for each in waiting] == [200] * 20
        # The first one, and all that came while it was made.
        assert not entered.acquire(blocking=False) or not entered.acquire(blocking=False)
    finally:
        release.set()
        for connection in waiting:
            connection.close()


def test_an_address_that_is_not_to_be_had_names_the_setting() -> None:
    with (
        serving({}) as port,
        pytest.raises(SettingsError, match=r"127\.0\.0\.1:\d+: Address already in use.*\[metrics\] port"),
        endpoint.served("127.0.0.1", port, {}, ANOTHER),
    ):
        pass
    with (
        pytest.raises(
            SettingsError, match=r"cannot listen on no\.such\.host\.invalid:0.*OUTBOX_METRICS__HOST"
        ),
        serving({}, "no.such.host.invalid"),
    ):
        pass
    with (
        pytest.raises(SettingsError, match=r"cannot listen on a\.\.b:0.*OUTBOX_METRICS__HOST"),
        serving({}, "a..b"),
    ):
        pass
    reserved = ReservedPort()
    for _ in range(2):  # given back
        with endpoint.served("127.0.0.1", reserved.number, {}, ANOTHER) as port:
            assert port == reserved.number
    reserved.close()


def test_the_probe_exits_with_what_the_page_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")  # is not asked
    with serving(service(HealthVerdict([]), HealthVerdict(["why not"]))) as port:
        assert probe(f"http://127.0.0.1:{port}/healthz") == (0, '{"healthy":true,"reasons":[]}')
        assert probe(f"http://127.0.0.1:{port}/readyz") == (1, '{"ready":false,"reasons":["why not"]}')
        command = [sys.executable, "-m", "service.probe", f"http://127.0.0.1:{port}/readyz"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (1, '{"ready":false,"reasons":["why not"]}\n')
    code, text = probe(f"http://127.0.0.1:{port}/healthz")
    assert (code, "refused" in text) == (1, True)
    assert probe("nonsense")[0] == 1


@pytest.mark.parametrize(
    "said", [b"", b"nonsense\r\n\r\n", b"HTTP/1.0 503 No\r\nContent-Length: 9\r\n\r\nhalf"]
)
def test_an_answer_that_is_none_is_a_probe_that_failed(said: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            client, _ = listening.accept()
            with client:
                client.recv(4_096)
                client.sendall(said)

        thread = threading.Thread(target=answer)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/healthz"
        code, text = probe(url)
        thread.join()
        assert code == 1
        assert text.startswith(f"{url}: ")


def test_an_empty_port_of_the_job_is_the_port_of_both() -> None:
    settings = MetricsSettings.model_validate({"port": "9464", "job_port": ""})
    assert settings.port_of_job() == 9_464


def test_the_probe_needs_nothing_but_the_standard_library() -> None:
    program = "import sys; import service.probe; sys.exit(', '.join({'pydantic', 'orjson', 'prometheus_client'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""


def test_a_reason_acts_on_no_terminal_and_is_the_same_text() -> None:
    foreign = "topic \x1b[2J\x9b31m\u202e\ud800 is missing"
    answers = endpoint.pages(
        [], lambda: HealthVerdict([]), lambda: HealthVerdict([foreign], {"lane": foreign})
    )
    body = answers["/readyz"]("").body.decode()
    assert body.removesuffix("\n").isprintable()
    assert json.loads(body) == {"ready": False, "reasons": [foreign], "lane": foreign}
