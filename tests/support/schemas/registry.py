"""A small schema registry with the API of Confluent's: what clients ask of one, its error codes, and outages on request.

Its answers are those of a real one (Apicurio's, through the same API) to the same requests. A real one can stand in for it: see REAL.
"""

import base64
import json
import math
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient

from service.formats.registry import schemas as opened_schemas
from service.formats.registry.client import configuration

Options = dict[str, str | int | float | bool]

REAL = "OUTBOX_TEST_SCHEMA_REGISTRY"
"""The url of a real registry, which the tests use instead of this one where they can."""


class Registry:
    """Where a registry is, and what can be done to it. Only the one of this module has outages."""

    def __init__(self, url: str, server: "_Server | None") -> None:
        self.url = url
        self._server = server
        self._clients: list[Options] = []

    @property
    def is_real(self) -> bool:
        """Whether it is somebody else's server."""
        return self._server is None

    def options(self, **changed: float) -> Options:
        """Of a client that does not wait long. `changed`: other options."""
        found: Options = {"url": self.url, "timeout": 5, "max.retries": 0, **changed}
        self.use(found)
        return found

    def use(self, options: Options) -> None:
        """Close what this process keeps open of these options, at the end."""
        self._clients.append(options)

    def register(
        self, subject: str, kind: str, text: str, references: dict[str, tuple[str, int]] | None = None
    ) -> int:
        """Register a schema; return its id. `references`: {name: (subject, version)}."""
        needed = [SchemaReference(name, *where) for name, where in (references or {}).items()]
        with SchemaRegistryClient(self.options()) as client:
            found: int = client.register_schema(subject, Schema(text, kind, needed))
        return found

    def keep_compatible(self, subject: str) -> None:
        """Refuse from now on new versions that cannot read what older ones wrote."""
        with SchemaRegistryClient(self.options()) as client:
            client.set_compatibility(subject, "BACKWARD")

    def newest(self, subject: str) -> int:
        """The id of a subject's newest schema."""
        with SchemaRegistryClient(self.options()) as client:
            found: int = client.get_latest_version(subject).schema_id
        return found

    def close_clients(self) -> None:
        """Close what this process keeps open for the tasks that used one of `options`."""
        for options in self._clients:
            opened = opened_schemas._opened.pop(configuration(options), None)
            if opened is not None:
                opened.client.close()

    @property
    def asked(self) -> list[str]:
        """The requests so far: method and path."""
        assert self._server is not None
        return self._server.asked

    def admit_only(self, user_and_password: str) -> None:
        """Refuse everybody else from now on."""
        assert self._server is not None
        self._server.login = f"Basic {base64.b64encode(user_and_password.encode()).decode()}"

    @contextmanager
    def answering(
        self,
        status: int,
        body: bytes = b'{"error_code": 50001, "message": "out of order"}',
        *,
        encoding: str = "identity",
        to: str = "",
    ) -> Iterator[None]:
        """Give this answer to all requests, or to those with `to` in their path or query."""
        assert self._server is not None
        self._server.only, self._server.only_to = (status, body, encoding), to
        try:
            yield
        finally:
            self._server.only = None

    def pause(self, seconds: int) -> None:
        """Answer so long with 429 and how much of it is left."""
        assert self._server is not None
        self._server.paused_until = time.monotonic() + seconds

    @property
    def asked_in_a_pause(self) -> int:
        """The requests that came in one."""
        assert self._server is not None
        return self._server.asked_in_a_pause

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """Answer nothing until the block ends."""
        assert self._server is not None
        with self._server.lock:
            yield


@contextmanager
def registry(*, own: bool = False) -> Iterator[Registry]:
    """A registry. `own`: the one of this module, also where a real one is named."""
    real = os.environ.get(REAL)
    if real and not own:
        # Its clients stay open: the tests after this one have the same.
        yield Registry(real, None)
        return
    server = _Server(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    found = Registry(f"http://127.0.0.1:{server.server_port}", server)
    try:
        yield found
    finally:
        found.close_clients()
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # so that closing waits for the threads, each of which closes its connection

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.asked: list[str] = []
        self.only: tuple[int, bytes, str] | None = None
        self.only_to = ""
        self.paused_until = 0.0
        self.asked_in_a_pause = 0
        self.login: str | None = None
        self.schemas: list[dict[str, Any]] = []  # by id - 1
        self.subjects: dict[str, list[int]] = {}
        self.compatible: set[str] = set()
        self.lock = threading.Lock()
        self._connections: set[socket.socket] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        """See the class above."""
        with self.lock:
            self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """See the class above."""
        with self.lock:
            self._connections.discard(request)
        super().shutdown_request(request)

    def server_close(self) -> None:
        """End the connections that clients keep alive, too."""
        with self.lock:
            for each in self._connections:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
        super().server_close()


class _RegistryError(Exception):
    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer."""
        self._answer()

    def do_POST(self) -> None:
        """Answer."""
        self._answer()

    def do_PUT(self) -> None:
        """Answer."""
        self._answer()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        sent = json.loads(self.rfile.read(length)) if length else {}
        url = urlsplit(self.path)
        parts = [unquote(part) for part in url.path.strip("/").split("/")]
        with self.server.lock:
            self.server.asked.append(f"{self.command} {url.path}")
            left = self.server.paused_until - time.monotonic()
            if left > 0:
                self.server.asked_in_a_pause += 1
                self._send(429, b"{}", retry_after=math.ceil(left))
                return
            if self.server.only is not None and self.server.only_to in self.path:
                self._send(*self.server.only)
                return
            try:
                if self.server.login not in (None, self.headers.get("Authorization")):
                    raise _RegistryError(401, 40101, "who are you?")
                found = self._found(parts, parse_qs(url.query), sent)
            except _RegistryError as error:
                body = {"error_code": error.code, "message": str(error)}
                self._send(error.status, json.dumps(body).encode())
            else:
                self._send(200, json.dumps(found).encode())

    def _send(
        self, status: int, body: bytes, encoding: str = "identity", *, retry_after: int | None = None
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Encoding", encoding)
        if retry_after is not None:
            self.send_header("Retry-After", str(retry_after))
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _found(self, parts: list[str], query: dict[str, list[str]], sent: dict[str, Any]) -> Any:
        match self.command, *parts:
            case "GET", "schemas", "ids", number:
                return self._schema(int(number))
            case "GET", "schemas", "ids", number, "versions":
                return self._places(int(number))
            case "POST", "subjects", subject, "versions":
                return {"id": self._registered(subject, _key(sent))}
            case "POST", "subjects", subject:
                return self._looked_up(subject, _key(sent))
            case "GET", "subjects", subject, "versions", version:
                newest = len(self.server.subjects.get(subject, []))
                return self._version(subject, newest if version == "latest" else int(version))
            case "PUT", "config", subject:
                self.server.compatible.add(subject)
                return {"compatibility": sent["compatibility"]}
        raise _RegistryError(404, 404, "HTTP 404 Not Found")

    def _schema(self, number: int) -> dict[str, Any]:
        if not 0 < number <= len(self.server.schemas):
            raise _RegistryError(404, 40403, f"Schema {number} not found")
        return self.server.schemas[number - 1]

    def _places(self, number: int) -> list[dict[str, Any]]:
        self._schema(number)
        return [
            {"subject": subject, "version": versions.index(number) + 1}
            for subject, versions in self.server.subjects.items()
            if number in versions
        ]

    def _registered(self, subject: str, schema: dict[str, Any]) -> int:
        versions = self.server.subjects.get(subject, [])
        if subject in self.server.compatible and versions:
            before = self.server.schemas[versions[-1] - 1]
            if schema.get("schemaType") != before.get("schemaType") or not _can_read(schema, before):
                words = "Schema being registered is incompatible with an earlier schema for subject"
                raise _RegistryError(409, 409, f'{words} "{subject}"')
        if schema not in self.server.schemas:
            self.server.schemas.append(schema)
        number = self.server.schemas.index(schema) + 1
        versions = self.server.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def _looked_up(self, subject: str, schema: dict[str, Any]) -> dict[str, Any]:
        if subject not in self.server.subjects:
            raise _RegistryError(404, 40401, f"Subject '{subject}' not found.")
        versions = self.server.subjects[subject]
        if schema not in self.server.schemas or self.server.schemas.index(schema) + 1 not in versions:
            raise _RegistryError(404, 40403, "Schema not found")
        return self._version(subject, versions.index(self.server.schemas.index(schema) + 1) + 1)

    def _version(self, subject: str, version: int) -> dict[str, Any]:
        versions = self.server.subjects.get(subject, [])
        if not 0 < version <= len(versions):
            raise _RegistryError(404, 40402, "Version not found")
        number = versions[version - 1]
        return {"subject": subject, "version": version, "id": number, **self.server.schemas[number - 1]}


def _can_read(schema: dict[str, Any], before: dict[str, Any]) -> bool:
    """Whether an Avro record has no field that the one before lacks, unless it has a default."""
    new, old = json.loads(schema["schema"])["fields"], json.loads(before["schema"])["fields"]
    names = {each["name"] for each in old}
    return all(each["name"] in names or "default" in each for each in new)


def _key(sent: dict[str, Any]) -> dict[str, Any]:
    """What of a request makes a schema."""
    found = {"schema": sent["schema"]}
    if sent.get("schemaType", "AVRO") != "AVRO":
        found["schemaType"] = sent["schemaType"]
    if sent.get("references"):
        found["references"] = sent["references"]
    return found
