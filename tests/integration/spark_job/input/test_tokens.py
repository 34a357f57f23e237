"""OAUTHBEARER: by one section both of the job's clients fetch tokens and read, librdkafka and the Java client that Spark brings."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
import pytest
from py4j.java_gateway import JavaGateway, java_import
from py4j.protocol import Py4JJavaError

from devstack.topics import create_topics
from service.errors import RefusedError
from service.settings import KafkaSettings
from spark_job.input.topics import KafkaInput
from spark_job.spark.jars import java_executable, spark_connector_jars
from tests.support.secured.kafka import SecuredKafka, right
from tests.support.secured.tokens import ALLOWED, TokenServer

INPUT, CLIENT, SECRET = "session-in", "the-job", "client-Rk8sW2"


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
