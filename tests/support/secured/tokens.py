"""A token endpoint: a plugin's provider, and what Kafka's clients ask themselves."""

import base64
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from devstack.processes.port import LOOPBACK
from tests.support.secured.authority import openssl

ALLOWED = "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls"
"""Kafka's own way to say what a JVM may read keys and tokens from."""


class TokenServer:
    """Gives a token to whoever names the client and its secret. `client`: the user that the broker sees."""

    def __init__(self, folder: Path, client: str, secret: str, life_s: int = 600) -> None:
        self._key = folder / "tokens.key"
        openssl("genrsa", "-out", self._key, "2048")
        self.keys = folder / "keys.json"
        """The public key, as brokers read it."""
        self.keys.write_text(json.dumps({"keys": [self._public()]}), "utf-8")
        self._basic = base64.b64encode(f"{client}:{secret}".encode()).decode()
        self._client = client
        self._life_s = life_s
        self.refused = self.given = 0
        self.is_down = False
        """Whether it answers with 503 and a page of HTML."""
        self._server = ThreadingHTTPServer((LOOPBACK, 0), self._handler())

    @property
    def url(self) -> str:
        """Where tokens are asked for."""
        return f"http://{LOOPBACK}:{self._server.server_port}/token"

    def plugin(self) -> str:
        """The code of a plugin that fetches its tokens here."""
        return _PLUGIN.format(url=self.url, basic=f"Basic {self._basic}")

    def broker_settings(self) -> dict[str, str]:
        """What a broker's listener needs to take the tokens."""
        package = "org.apache.kafka.common.security.oauthbearer"
        return {
            "sasl.jaas.config": f"{package}.OAuthBearerLoginModule required;",
            "sasl.server.callback.handler.class": f"{package}.OAuthBearerValidatorCallbackHandler",
            "sasl.oauthbearer.jwks.endpoint.url": self.keys.as_uri(),
            "sasl.oauthbearer.expected.audience": "kafka",
        }

    @contextmanager
    def running(self) -> Iterator[None]:
        """Answer within the block."""
        thread = Thread(target=self._server.serve_forever, name="tokens")
        thread.start()
        try:
            yield
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()

    def _public(self) -> dict[str, str]:
        shown = openssl("rsa", "-in", self._key, "-noout", "-modulus").decode().strip()
        modulus = bytes.fromhex(shown.removeprefix("Modulus="))
        return {"kty": "RSA", "kid": "1", "use": "sig", "alg": "RS256", "n": _text(modulus), "e": "AQAB"}

    def _token(self) -> str:
        now = int(time.time())
        claims = {
            "sub": self._client,
            "aud": "kafka",
            "iat": now,
            "exp": now + self._life_s,
            "scope": "kafka",
        }
        head = {"alg": "RS256", "kid": "1", "typ": "JWT"}
        signed = ".".join(_text(json.dumps(part).encode()) for part in (head, claims))
        signature = openssl("dgst", "-sha256", "-sign", self._key, data=signed.encode())
        return f"{signed}.{_text(signature)}"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                known = self.headers.get("Authorization") == f"Basic {server._basic}"
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if server.is_down:
                    self.send_error(503)
                    return
                server.refused += not known
                server.given += known
                answer = {
                    "access_token": server._token(),
                    "token_type": "Bearer",
                    "expires_in": server._life_s,
                }
                body = json.dumps(answer if known else {"error": "invalid_client"}).encode()
                self.send_response(200 if known else 401)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Nothing."""

        return Handler


def _text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


_PLUGIN = """
import json, time, urllib.request

def token(bootstrap_servers):
    asked = urllib.request.Request({url!r}, b"grant_type=client_credentials", {{"Authorization": {basic!r}}})
    with urllib.request.urlopen(asked, timeout=5) as answer:
        found = json.load(answer)
    return found["access_token"], time.time() + found["expires_in"], "somebody"
"""


def install_plugin(
    folder: Path, code: str, name: str = "tested", group: str = "kafka", function: str = "token"
) -> None:
    """Write a distribution with one plugin, `name`, into a folder that is or will be on the path of imports."""
    module = f"login_plugin_{name.replace('-', '_')}"
    (folder / f"{module}.py").write_text(code, "utf-8")
    described = folder / f"{module}-1.0.dist-info"
    described.mkdir(exist_ok=True)
    (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n", "utf-8")
    entry = f"[spark_outbox.{group}_login]\n{name} = {module}:{function}\n"
    (described / "entry_points.txt").write_text(entry, "utf-8")
