"""The endpoint answers every request by itself, whatever another one meets, and says clearly what it cannot do."""

import http.client
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest
from prometheus_client import CollectorRegistry, Counter

from devstack.processes.port import ReservedPort
from service.errors import SettingsError
from service.monitoring import endpoint
from service.monitoring.endpoint import MOST_REQUESTS, Answer, Page
from service.monitoring.verdict import HealthVerdict
from service.probe import probe
from service.settings import MetricsSettings

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


def test_head_is_the_status_without_the_body() -> None:
    with serving(service(HealthVerdict([]), HealthVerdict(["why"]))) as port:
        assert ask(port, "/readyz", "HEAD") == (503, "application/json", "")
        assert ask(port, "/nowhere", "HEAD")[0] == 404


def test_a_page_that_fails_is_a_500_and_the_endpoint_continues() -> None:
    def broken(_accept: str) -> Answer:
        raise ZeroDivisionError

    with serving(service(HealthVerdict([]), HealthVerdict([])) | {"/broken": broken}) as port:
        status, _, body = ask(port, "/broken")
        assert (status, "ZeroDivisionError" in body) == (500, True)
        assert ask(port, "/healthz")[0] == 200


def test_requests_that_hang_hold_up_neither_the_others_nor_the_end() -> None:
    entered, release = threading.Event(), threading.Event()

    def hanging(_accept: str) -> Answer:
        entered.set()
        release.wait()
        return Answer(200, "text/plain", b"")

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


def test_requests_beyond_the_bound_are_refused_until_one_ends() -> None:
    entered, release = threading.Semaphore(0), threading.Event()

    def hanging(_accept: str) -> Answer:
        entered.release()
        release.wait()
        return Answer(200, "text/plain", b"")

    waiting = []
    try:
        with serving(service(HealthVerdict([]), HealthVerdict([])) | {"/hanging": hanging}) as port:
            for _ in range(MOST_REQUESTS):
                waiting.append(http.client.HTTPConnection("127.0.0.1", port, timeout=30))
                waiting[-1].request("GET", "/hanging")
            assert all(entered.acquire(timeout=30) for _ in waiting)
            with socket.create_connection(("127.0.0.1", port), timeout=30) as refused:
                assert refused.recv(100).startswith(b"HTTP/1.0 503 ")
            release.set()
            for connection in waiting:
                assert connection.getresponse().status == 200
                connection.close()
            # Its thread may still be on its way out.
            while probe(f"http://127.0.0.1:{port}/healthz")[0]:
                pass
    finally:
        release.set()


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
