"""The HTTP endpoint of a service: `/metrics` for Prometheus, `/healthz` and `/readyz` for the supervisor of its process.

It has neither TLS nor a password: only the operators' network may reach it. http_server.py bounds what a stranger there can do.
"""

import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from service.errors import SettingsError
from service.json_text import json_text
from service.observability import http_server
from service.observability.http_server import HttpResponse, Page
from service.observability.verdict import HealthVerdict
from service.printable import printable_json

_OPEN_METRICS = "application/openmetrics-text"


def pages(
    collectors: Sequence[Collector], healthy: Callable[[], HealthVerdict], ready: Callable[[], HealthVerdict]
) -> dict[str, Page]:
    """Return the three pages of a service. `collectors`: each with its own metrics."""
    together = _Together(collectors)
    return {
        "/metrics": lambda accept: _metrics(together, accept),
        "/healthz": lambda _accept: _verdict("healthy", healthy()),
        "/readyz": lambda _accept: _verdict("ready", ready()),
    }


@contextmanager
def served(host: str, port: int, pages: Mapping[str, Page], another_port: str) -> Iterator[int]:
    """Serve `pages`, {path: page}, until the block ends; yield the port, which the system chooses for 0.

    Raises SettingsError if the address cannot be opened; `another_port`: the setting for another port.
    """
    try:
        listening = listen(host, port)
    except (OSError, UnicodeError) as error:
        raise SettingsError(
            f"the metrics endpoint cannot listen on {host}:{port}: {getattr(error, 'strerror', None) or error}. Correct [metrics] host "
            f"(OUTBOX_METRICS__HOST), give each process a port of its own with {another_port}, or switch the endpoint off with 0"
        ) from error
    number = int(listening.getsockname()[1])
    with http_server.serving(listening, pages):
        yield number


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; the system chooses the port for 0. Raises OSError, UnicodeError if the host cannot be a name."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = found[0]
    listening = socket.socket(family, kind, protocol)
    try:
        # Reuse the port of the process before, but share none: a second process on the same port is an error.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen()
    except BaseException:
        listening.close()
        raise
    return listening


class _Together(Collector):
    def __init__(self, collectors: Sequence[Collector]) -> None:
        self._collectors = collectors

    def collect(self) -> Iterator[Metric]:
        for collector in self._collectors:
            yield from collector.collect()


def _metrics(collector: Collector, accept: str) -> HttpResponse:
    # Check only the format's name: the library raises for a version that is not a number, and anybody may ask.
    encode, content_type = choose_encoder(_OPEN_METRICS if _OPEN_METRICS in accept else "")
    return HttpResponse(200, content_type, encode(collector))


def _verdict(word: str, verdict: HealthVerdict) -> HttpResponse:
    # People use curl, and a reason may quote foreign text.
    body = printable_json(json_text(verdict.as_json(word))) + "\n"
    return HttpResponse(200 if verdict.holds else 503, "application/json", body.encode())
