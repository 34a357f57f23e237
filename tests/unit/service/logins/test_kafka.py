"""`[kafka] login`: every client of librdkafka logs in by a plugin, whose failures are told and whose tokens are not."""

import ast
import gc
import importlib
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from publisher.kafka.clients import check_options
from service.errors import SettingsError, UnavailableError
from service.kafka.client import admin_client, no_answer
from service.logins.kafka import LoginFailedError, TokenSource, logged_in
from service.settings import KafkaSettings
from tests.support.paths import ROOT
from tests.support.secured.tokens import install_plugin

TOKEN = "hidden-token-Vb2"
GIVES = f"""
import time
asked = []
life_s = 600.0
failure = None

def token(bootstrap_servers):
    asked.append(bootstrap_servers)
    if failure is not None:
        raise failure
    return f"{TOKEN}-{{len(asked)}}", time.time() + life_s
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module whose `life_s` and `failure` a test sets."""
    name = f"t{time.monotonic_ns()}"  # a process imports a module once
    install_plugin(tmp_path, GIVES, name)
    monkeypatch.syspath_prepend(tmp_path)
    module: Any = importlib.import_module(f"login_plugin_{name}")
    module.name = name
    return module


UNVERIFIED: dict[str, Any] = {"enable.ssl.certificate.verification": False}
UNNAMED = {"ssl.endpoint.identification.algorithm": ""}


def settings(plugin: Any, **kafka: Any) -> KafkaSettings:
    return KafkaSettings(bootstrap_servers="127.0.0.1:1", login=plugin.name, **kafka)


def test_one_line_sets_tls_and_sasl_of_both_clients() -> None:
    kafka = KafkaSettings(login="google")
    assert kafka.portable_client() == kafka.client()
    assert kafka.client()["security.protocol"] == "SASL_SSL"
    assert kafka.client()["sasl.mechanism"] == "OAUTHBEARER"
    assert kafka.java() == {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    assert KafkaSettings(login="").client() == KafkaSettings().client()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"sasl.password": TOKEN}, "sasl.password"),
        ({"sasl.mechanism": "PLAIN"}, "sasl.mechanism"),
        ({"security.protocol": "sasl_plaintext"}, "security.protocol"),
        (UNVERIFIED, "enable.ssl.certificate.verification = False: .* ssl.ca.location"),
        (UNNAMED, "ssl.endpoint.identification.algorithm = '': .* ssl.ca.location"),
        ({"ssl.endpoint.identification.algorithm": "none"}, "= 'none': "),
        ({"ssl.endpoint.identification.algorithm": " none"}, "= ' none': "),
    ],
)
def test_options_that_contradict_it_are_refused(options: dict[str, Any], named: str) -> None:
    with pytest.raises(SettingsError, match=named) as refused:
        KafkaSettings(login="google", options=options).client()
    assert TOKEN not in str(refused.value)


@pytest.mark.parametrize("options", [{"security.protocol": "PLAINTEXT"}, UNNAMED])
def test_spark_s_client_is_not_told_to_do_without_tls_either(options: dict[str, str]) -> None:
    (name,) = options
    with pytest.raises(SettingsError, match=rf"\[kafka.java_options\] {name} = "):
        KafkaSettings(login="google", java_options=options).java()
    assert KafkaSettings(java_options=options).java()[name] == options[name]


def test_an_unknown_login_names_those_that_there_are(plugin: Any) -> None:
    with pytest.raises(SettingsError, match=rf"'aws-msk-iam', 'azure-entra', 'google', '{plugin.name}'"):
        logged_in(KafkaSettings(login="aws").client())


@pytest.mark.parametrize(
    ("login", "extra"), [("aws-msk-iam", "aws"), ("azure-entra", "azure"), ("google", "google")]
)
def test_without_its_vendors_package_a_login_says_what_to_install(
    login: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("aws_msk_iam_sasl_signer", "azure.identity", "google.auth"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(SettingsError, match=rf'pip install "spark-outbox\[{extra}\]"'):
        logged_in(KafkaSettings(login=login).client())


def test_a_token_is_kept_for_most_of_its_life_and_then_another_is_fetched(
    plugin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = TokenSource(plugin.name, "here:1")
    assert [source.token().value, source.token().value] == [f"{TOKEN}-1"] * 2
    now = time.time()
    monkeypatch.setattr("service.logins.kafka.time.time", lambda: now + 0.75 * plugin.life_s)
    assert source.for_librdkafka("")[0] == f"{TOKEN}-2"
    assert plugin.asked == ["here:1", "here:1"]


def test_a_renewal_that_fails_is_told_and_the_former_token_used_while_it_lasts(
    plugin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = TokenSource(plugin.name, "here:1")
    former = source.token()
    plugin.failure = ConnectionRefusedError("the endpoint is away")
    now = time.time()
    monkeypatch.setattr("service.logins.kafka.time.time", lambda: now + 0.75 * plugin.life_s)
    with capture_logs() as logs:
        assert source.token() == source.token() == former
    (said,) = logs
    assert said["event"] == "login_failed"
    assert "ConnectionRefusedError: the endpoint is away" in said["reason"]
    monkeypatch.setattr("service.logins.kafka.time.time", lambda: now + 1.1 * plugin.life_s)
    with capture_logs() as logs, pytest.raises(RuntimeError) as raised:
        source.for_librdkafka("")
    assert raised.value.__cause__ is None
    assert [each["event"] for each in logs] == ["login_failed"]
    assert TOKEN not in str(logs)
    plugin.failure = None
    asked = len(plugin.asked)
    with pytest.raises(LoginFailedError, match="the endpoint is away"):
        source.token()
    assert len(plugin.asked) == asked, "whoever waits for a login that has failed gets its answer"
    monkeypatch.setattr("service.logins.kafka.time.time", lambda: now + 1.1 * plugin.life_s + 11)
    assert source.token().value.startswith(TOKEN)


def test_nobody_waits_for_a_slow_login_while_the_former_token_is_good(
    plugin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = TokenSource(plugin.name, "here:1")
    former = source.token()
    now = time.time()
    monkeypatch.setattr("service.logins.kafka.time.time", lambda: now + 0.75 * plugin.life_s)
    asks, goes_on = threading.Event(), threading.Event()

    def slow(_servers: str) -> tuple[str, float]:
        asks.set()
        assert goes_on.wait(60)
        return f"{TOKEN}-new", now + 2 * plugin.life_s

    monkeypatch.setattr(plugin, "token", slow)
    with ThreadPoolExecutor(1) as pool:
        renewed = pool.submit(source.token)
        assert asks.wait(60)
        assert source.token() == former
        goes_on.set()
        assert renewed.result(60).value == source.token().value == f"{TOKEN}-new"


def test_a_failure_that_is_kept_keeps_no_frame_of_the_plugin(
    plugin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    alive: weakref.WeakSet[threading.Event] = weakref.WeakSet()

    def fails(_servers: str) -> None:
        held = threading.Event()
        alive.add(held)
        raise OSError("no route")

    monkeypatch.setattr(plugin, "token", fails)
    source = TokenSource(plugin.name, "here:1")
    with pytest.raises(LoginFailedError, match="no route"):
        source.token()
    gc.collect()
    assert len(alive) == 0


@pytest.mark.parametrize("kind", [OSError, type("PanicException", (BaseException,), {})])
def test_an_endpoint_that_is_away_is_a_server_that_does_not_answer(
    plugin: Any, kind: type[BaseException]
) -> None:
    plugin.failure = kind("no route")
    kafka = settings(plugin)
    for ask in (lambda: admin_client(kafka), lambda: check_options(kafka, 60_000)):
        with pytest.raises(UnavailableError, match=f"gave no token: {kind.__name__}: no route") as raised:
            ask()
        assert isinstance(raised.value, LoginFailedError)
        assert raised.value.__suppress_context__
        assert no_answer(kafka, raised.value.args[0]).endswith(str(raised.value))


@pytest.mark.parametrize("life_s", [-1.0, float("nan")])
def test_a_token_that_has_expired_is_none(plugin: Any, life_s: float) -> None:
    plugin.life_s = life_s
    with pytest.raises(LoginFailedError, match="expired, or is none") as raised:
        logged_in(settings(plugin).client())
    assert TOKEN not in str(raised.value)


def test_every_client_of_the_product_is_made_of_options_that_are_logged_in() -> None:
    made = {
        f"{path.relative_to(ROOT)}: {ast.unparse(node)}"
        for folder in ("service", "publisher", "spark_job")
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("Producer", "Consumer", "AdminClient")
    }
    assert len(made) == 5
    assert {each for each in made if "(logged_in(" not in each} == set()
