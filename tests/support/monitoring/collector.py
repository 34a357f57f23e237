"""A collector of spans: OTLP over HTTP, as a service sends it."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue


class CollectedSpan(NamedTuple):
    """A span. Ids as hexadecimal digits."""

    service: str
    name: str
    trace_id: str
    attributes: dict[str, object]
    links: list[str]
    """Trace ids."""


class Collector(ThreadingHTTPServer):
    """Keeps what it is sent."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.spans: list[CollectedSpan] = []

    @property
    def endpoint(self) -> str:
        """For `[tracing] endpoint`."""
        return f"http://127.0.0.1:{self.server_address[1]}/v1/traces"


@contextmanager
def collecting() -> Iterator[Collector]:
    """Serve one until the block ends."""
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        assert isinstance(self.server, Collector)
        self.server.spans += _spans(ExportTraceServiceRequest.FromString(body))
        answer = ExportTraceServiceResponse().SerializeToString()
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def _spans(request: ExportTraceServiceRequest) -> Iterator[CollectedSpan]:
    for of_service in request.resource_spans:
        named = {each.key: _value(each.value) for each in of_service.resource.attributes}
        for of_scope in of_service.scope_spans:
            for span in of_scope.spans:
                yield CollectedSpan(
                    str(named["service.name"]),
                    span.name,
                    span.trace_id.hex(),
                    {each.key: _value(each.value) for each in span.attributes},
                    [link.trace_id.hex() for link in span.links],
                )


def _value(given: AnyValue) -> object:
    kind = given.WhichOneof("value")
    return None if kind is None else getattr(given, kind)
