"""OAUTHBEARER: by one section both of the job's clients fetch tokens and read, librdkafka and the Java client that Spark brings."""

import base64
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pyspark
import pytest
from py4j.java_gateway import JavaGateway, java_import
from py4j.protocol import Py4JJavaError

from devstack.processes.port import LOOPBACK
from devstack.topics import create_topics
from service.errors import RefusedError
from service.settings import KafkaSettings
from spark_job.input.topics import KafkaInput
from spark_job.spark.jars import java_executable, spark_connector_jars
from tests.support.secured.authority import openssl
from tests.support.secured.kafka import SecuredKafka, right

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


INPUT, CLIENT, SECRET = "session-in", "the-job", "client-Rk8sW2"
ALLOWED = "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls"


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenServer]:
    """Where the job's user fetches its tokens."""
    server = TokenServer(tmp_path_factory.mktemp("tokens"), CLIENT, SECRET)
    with server.running():
        yield server


@pytest.fixture(scope="module")
def kafka(tokens: TokenServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    """A broker that takes them."""
    server = SecuredKafka(tmp_path_factory.mktemp("guarded"), tokens.broker_settings())
    try:
        with pytest.MonkeyPatch.context() as patch:
            # Kafka's own way to say which keys a JVM may read.
            patch.setenv("JDK_JAVA_OPTIONS", f"{ALLOWED}={tokens.keys.as_uri()}")
            server.start()
        create_topics(server.bootstrap_servers, {INPUT: (2, {})})
        server.allow(*(right("topic", INPUT, each, user=CLIENT) for each in ("read", "describe_configs")))
        yield server
    finally:
        server.destroy()


def settings(kafka: SecuredKafka, tokens: TokenServer, folder: Path, secret: str = SECRET) -> KafkaSettings:
    """`[kafka]` with a secret from a file."""
    file = folder / "secret.toml"
    file.write_text(f'"sasl.oauthbearer.client.secret" = "{secret}"\n', "utf-8")
    options: dict[str, str | int | float | bool] = {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(kafka.authority),
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": CLIENT,
        "sasl.oauthbearer.token.endpoint.url": tokens.url,
    }
    return KafkaSettings(
        bootstrap_servers=kafka.secured_servers,
        options=options,
        secret_options_file=file,
        request_timeout_s=30,
    )


class JavaClientError(Exception):
    """What the Java client raised, with its causes."""


def causes(failure: Any) -> Iterator[str]:
    """Yield what an exception says, and each of its causes."""
    while failure is not None:
        yield failure.toString()
        failure = failure.getCause()


@contextmanager
def java_consumer(kafka: KafkaSettings, *options: str) -> Iterator[Any]:
    """The consumer that Spark would make of these settings, in a JVM with these options."""
    jars = [*spark_connector_jars(), *(Path(pyspark.__file__).parent / "jars").glob("*.jar")]
    gateway = JavaGateway.launch_gateway(
        classpath=":".join(map(str, jars)),
        javaopts=list(options),
        java_path=java_executable(),
        die_on_exit=True,
    )
    try:
        java_import(gateway.jvm, "org.apache.kafka.clients.consumer.KafkaConsumer")
        properties = gateway.jvm.java.util.Properties()
        text = "org.apache.kafka.common.serialization.StringDeserializer"
        own = {"bootstrap.servers": kafka.bootstrap_servers, "default.api.timeout.ms": "60000"}
        for name, value in (
            own | {"key.deserializer": text, "value.deserializer": text} | kafka.java()
        ).items():
            properties.setProperty(name, value)
        yield gateway.jvm.KafkaConsumer(properties)
    except Py4JJavaError as error:
        raise JavaClientError(" <- ".join(causes(error.java_exception))) from None
    finally:
        gateway.shutdown()


def test_both_clients_fetch_tokens_and_read(kafka: SecuredKafka, tokens: TokenServer, tmp_path: Path) -> None:
    by_token = settings(kafka, tokens, tmp_path)
    client = KafkaInput(by_token, [INPUT], "")
    topics = client.describe()
    client.check_policies()
    assert list(client.bounds(topics, "readable").values()) == [0, 0]
    with java_consumer(by_token, f"{ALLOWED}={tokens.url}") as consumer:
        assert len(consumer.partitionsFor(INPUT)) == 2
    assert tokens.refused == 0


def test_a_wrong_secret_is_refused_by_name_and_not_shown(
    kafka: SecuredKafka, tokens: TokenServer, tmp_path: Path
) -> None:
    wrong = settings(kafka, tokens, tmp_path, "wrong-Bq3")
    with pytest.raises(RefusedError, match="refuses the credentials") as raised:
        KafkaInput(wrong, [INPUT], "").describe()
    assert "wrong-Bq3" not in str(raised.value)
    with (
        pytest.raises(JavaClientError, match=r"401|invalid_client") as in_java,
        java_consumer(wrong, f"{ALLOWED}={tokens.url}"),
    ):
        pass
    assert "wrong-Bq3" not in str(in_java.value)
