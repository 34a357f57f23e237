"""How `[kafka] login` reaches Kafka's Java client: a vendor's module, or tokens over loopback for whoever knows the secret."""

import base64
import json
import time
import urllib.error
import urllib.request
from types import SimpleNamespace
from typing import Any

import pytest

from service.errors import SettingsError
from service.logins.kafka import KafkaToken, LoginFailedError
from service.settings import KafkaSettings
from spark_job.stream import kafka_login
from spark_job.stream.kafka_login import TokenEndpoint, java_login


class Source:
    """Gives one token, or raises."""

    failure: Exception | None = None

    def token(self) -> KafkaToken:
        if self.failure is not None:
            raise self.failure
        return KafkaToken("a.b.c", time.time() + 600)


def ask(endpoint: TokenEndpoint, secret: str) -> tuple[int, dict[str, Any]]:
    basic = base64.b64encode(f"spark:{secret}".encode()).decode()
    request = urllib.request.Request(endpoint.url, b"", {"Authorization": f"Basic {basic}"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_only_who_knows_the_secret_gets_a_token() -> None:
    source: Any = Source()
    endpoint = TokenEndpoint(source)
    secret = endpoint.client()["sasl.oauthbearer.client.secret"]
    status, found = ask(endpoint, secret)
    assert (status, found["access_token"]) == (200, "a.b.c")
    assert 500 < found["expires_in"] <= 600
    status, found = ask(endpoint, "guessed")
    assert (status, found) == (401, {"error": "invalid_client"})
    source.failure = LoginFailedError("the endpoint is away")
    status, found = ask(endpoint, secret)
    assert (status, found["error_description"]) == (503, "the endpoint is away")


def spark(master: str) -> Any:
    return SimpleNamespace(sparkContext=SimpleNamespace(master=master))


def test_without_a_login_the_java_client_is_told_nothing() -> None:
    assert java_login(spark("local[2]"), KafkaSettings()) == {}


def test_executors_elsewhere_are_refused_where_no_vendor_has_a_jar() -> None:
    with pytest.raises(SettingsError, match="Maven Central has no Java login module"):
        java_login(spark("spark://one:7077"), KafkaSettings(login="azure-entra"))


def test_msk_has_its_vendors_module_on_every_master(monkeypatch: pytest.MonkeyPatch) -> None:
    session = spark("k8s://here")
    added: list[str] = []
    session.sql = added.append
    monkeypatch.setattr(kafka_login, "resolve", lambda _lock: ["/jars/a.jar"])
    found = KafkaSettings(login="aws-msk-iam").java(java_login(session, KafkaSettings(login="aws-msk-iam")))
    assert found["sasl.mechanism"] == "AWS_MSK_IAM"
    assert found["security.protocol"] == "SASL_SSL"
    assert added == ["ADD JAR '/jars/a.jar'"]
