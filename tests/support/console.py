"""A console to ask, and plain HTTP requests to it."""

import http.client
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from publisher.console.alerts.observed import NotReady
from publisher.console.server import serving
from service.settings import ConsoleSettings, Settings


class Answered(NamedTuple):
    """An answer, read to its end."""

    status: int
    headers: Mapping[str, str]
    text: str


class Console:
    """One that listens on a port of this host."""

    def __init__(self, port: int) -> None:
        self.port = port

    def get(self, path: str, *, method: str = "GET", body: str | None = None, **headers: str) -> Answered:
        """Ask for a page; `_` in the name of a header is `-`."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            if body is not None:
                named["Content-Type"] = "application/x-www-form-urlencoded"
            connection.request(method, path, body, named)
            answer = connection.getresponse()
            return Answered(
                answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read().decode()
            )
        finally:
            connection.close()

    def shown(self, path: str) -> str:
        """Return a page that must be there."""
        answer = self.get(path)
        assert answer.status == 200, answer
        return answer.text

    @contextmanager
    def watching(self, page: str, **headers: str) -> Iterator[Iterator[str]]:
        """Yield the lines of a live page, to the end of its stream. Raises TimeoutError after five seconds without a line."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", f"/live?page={page}", headers=headers)
            answer = connection.getresponse()
            assert answer.status == 200, answer.status
            yield iter(lambda: answer.readline().decode(), "")
        finally:
            connection.close()

    def first_event(self, page: str) -> tuple[str, str]:
        """Return the kind and the text of the first event of a live page."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("GET", f"/live?page={page}")
            answer = connection.getresponse()
            assert answer.status == 200, answer.status
            kind, text = "", []
            while line := answer.readline().decode().rstrip("\n"):
                if line.startswith("retry:"):
                    answer.readline()
                elif line.startswith("event: "):
                    kind = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    text.append(line.removeprefix("data: "))
            return kind, "\n".join(text)
        finally:
            connection.close()


@contextmanager
def console_of(settings: Settings, not_ready: NotReady = lambda: (), **console: Any) -> Iterator[Console]:
    """Serve one with these settings of `[console]`."""
    chosen = ConsoleSettings.model_validate(console)
    with serving(settings.model_copy(update={"console": chosen}), not_ready) as port:
        yield Console(port)
