"""An HTTP proxy in front of a server of S3 that refuses requests, or cuts answers, as it is told."""

import http.client
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

from devstack.processes.port import LOOPBACK

ERROR = "<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>"
_OF_ONE_HOP = ("transfer-encoding", "connection", "content-length", "expect")

Fault = Callable[[str, str], "tuple[int, str] | int | None"]
"""From method and path to (status, S3's error code), after how many bytes of the answer's body the connection is cut, or nothing."""


class S3Proxy:
    """In front of the server on a port. `fault` decides about each request; without one, all pass."""

    def __init__(self, target: int) -> None:
        self.fault: Fault = lambda _, __: None
        self.requests: list[tuple[str, str]] = []
        """(method, path) of each."""
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _handle(self) -> None:
                body = b"".join(self._chunks())
                proxy.requests.append((self.command, self.path))
                fault = proxy.fault(self.command, self.path)
                if isinstance(fault, tuple):
                    status, code = fault
                    self._answer(status, {}, ERROR.format(code=code, message="as the test wants").encode())
                    return
                server = http.client.HTTPConnection(LOOPBACK, target, timeout=30)
                sent = {k: v for k, v in self.headers.items() if k.lower() not in _OF_ONE_HOP}
                server.request(self.command, self.path, body, sent | {"Content-Length": str(len(body))})
                answer = server.getresponse()
                content = answer.read()
                headers = {k: v for k, v in answer.getheaders() if k.lower() not in _OF_ONE_HOP}
                length = answer.getheader("Content-Length") if self.command == "HEAD" else None
                self._answer(answer.status, headers, content, length, fault)
                server.close()

            def _chunks(self) -> Iterator[bytes]:
                if self.headers.get("Transfer-Encoding") != "chunked":
                    yield self.rfile.read(int(self.headers.get("Content-Length", 0)))
                    return
                while size := int(self.rfile.readline(), 16):
                    yield self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _handle  # noqa: N815

            def _answer(
                self,
                status: int,
                headers: dict[str, str],
                content: bytes,
                length: str | None = None,
                cut: int | None = None,
            ) -> None:
                self.send_response_only(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", length or str(len(content)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content[:cut])
                if cut is not None:
                    self.close_connection = True

            def log_message(self, *_: object) -> None:
                """Nothing: the test looks at `requests`."""

        self._server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def port(self) -> int:
        """What clients connect to."""
        return int(self._server.server_address[1])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
