"""A server of tokens, as OpenID Connect's client credentials grant has it: JSON Web Tokens signed by a key that a broker knows."""

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

_LIFE_S = 600


class TokenServer:
    """Gives a token to whoever names the client and its secret. `client`: the user that the broker sees."""

    def __init__(self, folder: Path, client: str, secret: str) -> None:
        self._key = folder / "tokens.key"
        openssl("genrsa", "-out", self._key, "2048")
        self.keys = folder / "keys.json"
        """The public key, as brokers read it."""
        self.keys.write_text(json.dumps({"keys": [self._public()]}), "utf-8")
        self._basic = base64.b64encode(f"{client}:{secret}".encode()).decode()
        self._client = client
        self.refused = 0
        self._server = ThreadingHTTPServer((LOOPBACK, 0), self._handler())

    @property
    def url(self) -> str:
        """Where tokens are asked for."""
        return f"http://{LOOPBACK}:{self._server.server_port}/token"

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
        claims = {"sub": self._client, "aud": "kafka", "iat": now, "exp": now + _LIFE_S, "scope": "kafka"}
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
                server.refused += not known
                answer = {"access_token": server._token(), "token_type": "Bearer", "expires_in": _LIFE_S}
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
