"""How `[kafka] login` reaches Kafka's Java client: a vendor's module, or tokens over loopback for whoever knows the secret."""

import base64
import json
import socket
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest

from service.errors import SettingsError
from service.logins.kafka import KafkaToken, LoginFailedError
from service.settings import KafkaSettings
from spark_job.stream import kafka_login
from spark_job.stream.kafka_login import TokenEndpoint, java_login
from tests.support.waiting import DEADLINE_S, wait_until


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


def has_threads(least: int) -> bool:
    return sum("process_request_thread" in thread.name for thread in threading.enumerate()) >= least


def test_whoever_connects_and_does_not_know_the_secret_keeps_nobody_out() -> None:
    """Any user of the machine may connect: with some silent connections Spark had no token, and the job no input."""
    source: Any = Source()
    endpoint = TokenEndpoint(source)
    secret = endpoint.client()["sasl.oauthbearer.client.secret"]
    with ExitStack() as strangers:
        connect(strangers, endpoint)
        assert ask(endpoint, secret)[0] == 200
        asked, found = threading.Event(), threading.Event()

        def slow() -> KafkaToken:
            asked.set()
            assert found.wait(DEADLINE_S)
            return KafkaToken("a.b.c", time.time() + 600)

        source.token = slow
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(ask, endpoint, secret)
            assert asked.wait(DEADLINE_S)
            connect(strangers, endpoint)
            found.set()
            assert answer.result()[0] == 200


def connect(strangers: ExitStack, endpoint: TokenEndpoint) -> None:
    """As many as it answers at once, none of which ends its request."""
    port = urlsplit(endpoint.url).port
    assert port is not None
    for number in range(16):
        stranger = strangers.enter_context(socket.create_connection(("127.0.0.1", port)))
        stranger.sendall(b"POST /token HTTP/1.1\r\n")
        wait_until(partial(has_threads, number + 1), "a thread for each connection")


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
