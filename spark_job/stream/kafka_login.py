"""`[kafka] login` for Spark's client, which is Kafka's Java client.

For MSK, AWS offers a login module, which Spark receives as a jar. For every other login, Kafka's own client fetches and renews the tokens
of librdkafka's clients from this process: over HTTP on loopback, with a secret that only the two know.
"""

import base64
import functools
import hmac
import json
import secrets
import socket
import threading
import time
from collections import deque
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any

from pyspark.sql import SparkSession

from service.errors import OutboxError, SettingsError
from service.lifecycle.threads import supervised
from service.logins.kafka import TokenSource, token_source
from service.settings import KafkaSettings
from service.settings.java_client import java_options
from spark_job.spark.jars import resolve

_LOOPBACK = "127.0.0.1"
_CLIENT = "spark"
_READ_WITHIN_S = 5
_MOST_STRANGERS = 16
_MOST_BODY_BYTES = 65_536
_ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
_AWS_MODULE = "software.amazon.msk.auth.iam"
AWS = {
    "sasl.mechanism": "AWS_MSK_IAM",
    "sasl.jaas.config": f"{_AWS_MODULE}.IAMLoginModule required;",
    "sasl.client.callback.handler.class": f"{_AWS_MODULE}.IAMClientCallbackHandler",
}
"""Options of the Java client for MSK."""


def java_login(session: SparkSession, kafka: KafkaSettings) -> dict[str, str]:
    """Return the options by which the Java client logs in; none without a login. Raises SettingsError, JarsError."""
    if kafka.login is None:
        return {}
    if kafka.login == "aws-msk-iam":
        for jar in resolve(files("spark_job.spark") / "aws-msk-iam.lock"):
            session.sql(f"ADD JAR '{jar}'")
        return AWS
    if not str(session.sparkContext.master).startswith("local"):
        raise SettingsError(
            f"[kafka] login = {kafka.login!r} needs [job] master = 'local[*]': it gives Spark's executors on other machines no tokens, and "
            "Maven Central has no Java login module for it that the job could send them. Name one with its jars in [kafka.java_options] "
            "and [job.spark_options], and remove the login (docs/managed-services.md#a-spark-cluster)"
        )
    endpoint = _endpoint(kafka.login, kafka.bootstrap_servers)
    _allow(session, endpoint.url)
    return java_options(endpoint.client())


def _allow(session: SparkSession, url: str) -> None:
    """Allow this JVM to ask that server: Kafka's client asks only servers that a property names."""
    virtual_machine: Any = session.sparkContext._jvm
    system = virtual_machine.java.lang.System
    allowed = [each for each in (system.getProperty(_ALLOWED_URLS) or "").split(",") if each]
    if url not in allowed:
        system.setProperty(_ALLOWED_URLS, ",".join([*allowed, url]))


class _Server(ThreadingHTTPServer):
    """Serves a limited number of connections, because any process on this machine may open some. A new connection replaces the oldest one
    that has not sent the secret: a client that sends it at once is answered.
    """

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__((_LOOPBACK, 0), handler)
        self._lock = threading.Lock()
        self._strangers: deque[Any] = deque()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a connection in a separate thread."""
        with self._lock:
            self._strangers.append(request)
            oldest = self._strangers.popleft() if len(self._strangers) > _MOST_STRANGERS else None
        if oldest is not None:
            with suppress(OSError):  # it has just ended
                oldest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer the connection. Runs in its separate thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.keep(request)

    def keep(self, request: Any) -> None:
        """Never close this connection to make room: it has sent the secret, or has ended."""
        with self._lock, suppress(ValueError):  # it was already ended to make room
            self._strangers.remove(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing: clients may disconnect."""


class TokenEndpoint:
    """Answers the Java client of this machine, in a separate thread. The thread and its secret live as long as the process."""

    def __init__(self, source: TokenSource) -> None:
        self._source = source
        self._secret = secrets.token_urlsafe(32)
        self._server = _Server(self._handler())
        supervised(self._server.serve_forever, "kafka tokens", threading.Event()).start()

    @property
    def url(self) -> str:
        """The address of the endpoint."""
        return f"http://{_LOOPBACK}:{self._server.server_port}/token"

    def client(self) -> dict[str, str]:
        """Return the options, by librdkafka's names, of a client that asks here."""
        return {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": self.url,
            "sasl.oauthbearer.client.id": _CLIENT,
            "sasl.oauthbearer.client.secret": self._secret,
        }

    def is_known(self, authorization: str) -> bool:
        """Whether a request has the secret."""
        known = base64.b64encode(f"{_CLIENT}:{self._secret}".encode()).decode()
        return hmac.compare_digest(authorization.encode(), f"Basic {known}".encode())

    def answer(self, authorization: str) -> tuple[int, dict[str, Any]]:
        """Return the status and the body for a request."""
        if not self.is_known(authorization):
            return 401, {"error": "invalid_client"}
        try:
            token = self._source.token()
        except OutboxError as error:
            return 503, {"error": "temporarily_unavailable", "error_description": str(error)}
        lasts_s = max(1, int(token.expires_at - time.time()))
        return 200, {"access_token": token.value, "token_type": "Bearer", "expires_in": lasts_s}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            timeout = _READ_WITHIN_S

            def do_POST(self) -> None:
                authorization = self.headers.get("Authorization", "")
                if endpoint.is_known(authorization):
                    endpoint._server.keep(self.connection)
                # If part of the request were unread, the answer would be lost when the connection ends.
                length = self.headers.get("Content-Length", "")
                self.rfile.read(min(int(length), _MOST_BODY_BYTES) if length.isdecimal() else 0)
                status, found = endpoint.answer(authorization)
                body = json.dumps(found).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Log no request."""

        return Handler


@functools.cache
def _endpoint(login: str, bootstrap_servers: str) -> TokenEndpoint:
    return TokenEndpoint(token_source(login, bootstrap_servers))
