"""The HTTP endpoint of a service: `/metrics` for Prometheus, `/healthz` and `/readyz` for whoever runs it.

A thread for each request, so that one that hangs holds up no other. Neither TLS nor a password: for the network of the operators only.
"""

import socket
import socketserver
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import orjson
import structlog
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from service.errors import SettingsError
from service.monitoring.verdict import HealthVerdict

_log = structlog.get_logger()

# A client that connects and says nothing, or does not read its answer, is let go after this.
_CLIENT_TIMEOUT_S = 10.0
# Requests at a time. A client may also dribble, a byte before each timeout: it gets no more than its share of the process' threads.
MOST_REQUESTS = 32


class Answer(NamedTuple):
    """What a page answers."""

    status: int
    content_type: str
    body: bytes


Page = Callable[[str], Answer]
"""Makes an answer, given the request's `Accept` header."""


def pages(
    collectors: Sequence[Collector], healthy: Callable[[], HealthVerdict], ready: Callable[[], HealthVerdict]
) -> dict[str, Page]:
    """Return the three pages of a service. `collectors` have different metrics."""
    together = _Together(collectors)
    return {
        "/metrics": lambda accept: _metrics(together, accept),
        "/healthz": lambda _accept: _verdict("healthy", healthy()),
        "/readyz": lambda _accept: _verdict("ready", ready()),
    }


@contextmanager
def served(host: str, port: int, pages: Mapping[str, Page], another_port: str) -> Iterator[int]:
    """Serve `pages`, {path: page}, until the block ends; yield the port, which the system chooses for 0.

    Raises SettingsError where the address is not to be had; `another_port` names the setting that gives another one.
    """
    try:
        family, address = _address(host, port)
        server = _Server(family, address, pages)
    # UnicodeError: the host is no name at all.
    except (OSError, UnicodeError) as error:
        raise SettingsError(
            f"the metrics endpoint cannot listen on {host}:{port}: {getattr(error, 'strerror', None) or error}. Correct [metrics] host "
            f"(OUTBOX_METRICS__HOST), give each process a port of its own with {another_port}, or switch the endpoint off with 0"
        ) from error
    thread = threading.Thread(target=server.serve_forever, args=(0.2,), name="endpoint", daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _address(host: str, port: int) -> tuple[socket.AddressFamily, Any]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = found[0]
    return family, address


class _Together(Collector):
    def __init__(self, collectors: Sequence[Collector]) -> None:
        self._collectors = collectors

    def collect(self) -> Iterator[Metric]:
        for collector in self._collectors:
            yield from collector.collect()


def _metrics(collector: Collector, accept: str) -> Answer:
    encode, content_type = choose_encoder(accept)
    return Answer(200, content_type, encode(collector))


def _verdict(word: str, verdict: HealthVerdict) -> Answer:
    body = orjson.dumps(verdict.as_json(word), option=orjson.OPT_APPEND_NEWLINE)
    return Answer(200 if verdict.holds else 503, "application/json", body)


def _text(status: int, text: str) -> Answer:
    return Answer(status, "text/plain; charset=utf-8", f"{text}\n".encode())


# Not http.server.HTTPServer: that one asks the name service for the host's full name before it listens.
class _Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    block_on_close = False  # a request that hangs must not hold up the end of the process
    allow_reuse_address = True
    allow_reuse_port = False  # a second process on the same port is an error, not a partner
    request_queue_size = 64

    def __init__(self, family: socket.AddressFamily, address: Any, pages: Mapping[str, Page]) -> None:
        self.address_family = family
        self.pages = pages
        self._free = threading.Semaphore(MOST_REQUESTS)
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            try:
                super().process_request(request, client_address)
            except BaseException:
                self._free.release()  # no thread was to be had
                raise
            return
        request.setblocking(False)
        with suppress(OSError):
            request.send(b"HTTP/1.0 503 Too many requests at a time\r\nContent-Length: 0\r\n\r\n")
        self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, _request: object, client_address: object) -> None:
        _log.debug("endpoint_client_lost", client=str(client_address))


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _CLIENT_TIMEOUT_S
    server_version = "spark-outbox"
    sys_version = ""

    def do_GET(self) -> None:
        answer = self._answer()
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def do_HEAD(self) -> None:
        self.do_GET()  # leaves the body out

    def _answer(self) -> Answer:
        path = urlsplit(self.path).path
        page = self.server.pages.get(path)
        if page is None:
            return _text(404, f"there is no {path} here, only {', '.join(sorted(self.server.pages))}")
        try:
            return page(self.headers.get("Accept", ""))
        except Exception as error:  # noqa: BLE001 - told to whoever asks, and the endpoint continues
            _log.error("endpoint_failed", path=path, exc_info=error)
            return _text(
                500, f"{path} failed: {type(error).__name__}. The traceback is in the log (`endpoint_failed`)"
            )

    def log_message(self, *_: object) -> None:
        """Say nothing: a probe comes every few seconds."""
