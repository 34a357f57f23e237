"""`publisher check-cluster` on real brokers: one that fits, one with ACLs, and what cannot be used."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import typer
from confluent_kafka.admin import AdminClient

from devstack.kafka import Kafka, KafkaServer
from devstack.topics import create_topics
from publisher.cluster_check.checks import CHECKS
from publisher.cluster_check.scratch import Scratch
from publisher.commands import check_cluster as command
from service.commands.checks import CheckAnswer, ServerCheck
from service.errors import RefusedError, UnavailableError
from tests.support.secured.kafka import PASSWORD, SecuredKafka
from tests.support.secured.rights import PUBLISHER, Right, single
from tests.support.waiting import wait_until

RIGHTS = list(single(PUBLISHER))
DELETE = Right("topic", "outbox-progress-", "Delete", prefix=True)


def left(bootstrap_servers: str) -> list[str]:
    """The scratch topics that are still there."""
    client = AdminClient({"bootstrap.servers": bootstrap_servers})
    return [name for name in client.list_topics(timeout=30).topics if "-check-" in name]


def config(tmp_path: Path, kafka: str, more: str = "") -> Path:
    """A settings file."""
    file = tmp_path / "outbox.toml"
    file.write_text(f"[kafka]\nrequest_timeout_s = 20\n{kafka}\n{more}\n", "utf-8")
    return file


def run(file: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any], str]:
    """Exit code, {check: its result} and what stands on stderr."""
    try:
        command.check_cluster(file, as_json=True)
        code = 0
    except typer.Exit as end:
        code = end.exit_code
    printed = capsys.readouterr()
    return code, {each["name"]: each for each in json.loads(printed.out)["checks"]}, printed.err


def test_a_cluster_that_fits(
    kafka: KafkaServer, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    servers = f'bootstrap_servers = "{kafka.bootstrap_servers}"'
    topics = f'[source]\ntopics = ["{topic}"]\n[publisher]\noutput_topics = ["{topic}", "{topic}-*"]'
    code, found, errors = run(config(tmp_path, servers, topics), capsys)
    # Tests have one broker.
    wrong = {name: each for name, each in found.items() if each["outcome"] != "ok"}
    assert wrong.keys() <= {"transaction log"}, (wrong, errors)
    assert code == 0
    assert len(found) == len(CHECKS) + 2
    wait_until(lambda: left(kafka.bootstrap_servers) == [], lambda: str(left(kafka.bootstrap_servers)))


def test_an_end_in_the_middle_removes_the_topic(
    kafka: KafkaServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []
    asked: list[threading.Event] = []

    @contextmanager
    def no_signals(stop: threading.Event) -> Iterator[None]:
        asked.append(stop)
        yield

    def interrupted(scratch: Scratch) -> CheckAnswer:
        seen.append(left(kafka.bootstrap_servers))
        asked[0].set()
        assert scratch.give_up()
        return CheckAnswer("ok", "")

    def never(_: Scratch) -> CheckAnswer:
        raise AssertionError("it went on")

    checks = (ServerCheck("one", "", interrupted), ServerCheck("two", "", never))
    monkeypatch.setattr(command, "CHECKS", checks)
    monkeypatch.setattr(command, "stop_on_signals", no_signals)
    with pytest.raises(typer.Abort):
        command.check_cluster(config(tmp_path, f'bootstrap_servers = "{kafka.bootstrap_servers}"'))
    assert len(seen[0]) == 1
    wait_until(lambda: left(kafka.bootstrap_servers) == [], lambda: str(left(kafka.bootstrap_servers)))


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_removes_the_topic(kafka: KafkaServer, tmp_path: Path, sent: signal.Signals) -> None:
    """Whether it comes in the middle or just at the end."""
    file = config(tmp_path, f'bootstrap_servers = "{kafka.bootstrap_servers}"')
    arguments = [sys.executable, "-m", "publisher", "check-cluster", "--config", str(file)]
    with subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        wait_until(lambda: bool(left(kafka.bootstrap_servers)) or process.poll() is not None, "the topic")
        process.send_signal(sent)
        _, errors = process.communicate(timeout=60)
    assert process.returncode in (0, 1), errors
    wait_until(lambda: left(kafka.bootstrap_servers) == [], lambda: str(left(kafka.bootstrap_servers)))


def test_a_transaction_timeout_beyond_the_brokers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    server = Kafka(tmp_path / "kafka", fast=True, settings={"transaction.max.timeout.ms": "30000"})
    server.start()
    try:
        code, found, _ = run(config(tmp_path, f'bootstrap_servers = "{server.bootstrap_servers}"'), capsys)
        assert (code, found["transaction timeout"]["outcome"]) == (16, "failed")
        assert "transaction.max.timeout.ms" in found["transaction timeout"]["remedy"]
        # The others use one that every broker allows.
        assert found["fencing"]["outcome"] == found["isolation"]["outcome"] == "ok"
    finally:
        server.destroy()


def test_a_cluster_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"127\.0\.0\.1:1"):
        command.check_cluster(config(tmp_path, 'bootstrap_servers = "127.0.0.1:1"'))


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    """A broker with ACLs."""
    server = SecuredKafka(tmp_path_factory.mktemp("guarded"))
    server.start()
    create_topics(server.bootstrap_servers, {"orders": (1, {}), "events": (1, {})})
    yield server
    server.destroy()


@pytest.fixture
def guarded_config(guarded: SecuredKafka, tmp_path: Path) -> Path:
    """Settings of a user with the rights that docs/ecosystem.md lists for the publisher, and Delete."""
    guarded.allow(*(each.acl(output="orders") for each in [*RIGHTS, DELETE]))
    (tmp_path / "secret.toml").write_text(f'"sasl.password" = "{PASSWORD}"\n', "utf-8")
    options = "\n".join(
        f"{json.dumps(name)} = {json.dumps(value)}" for name, value in guarded.options().items()
    )
    kafka = (
        f'bootstrap_servers = "{guarded.secured_servers}"\nsecret_options_file = "{tmp_path / "secret.toml"}"'
    )
    topics = '[source]\ntopics = ["events"]\n[publisher]\noutput_topics = ["orders"]'
    return config(tmp_path, kafka, f"[kafka.options]\n{options}\n{topics}")


def test_the_listed_rights_are_enough(
    guarded: SecuredKafka, guarded_config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found, errors = run(guarded_config, capsys)
    warned = {name for name, each in found.items() if each["outcome"] == "warning"}
    assert (code, "may still be there" in errors) == (0, False), found
    # The job's user may read its input; the log of the transactions is not shown to everybody.
    assert warned == {"transaction log", "input events"}
    wait_until(lambda: left(guarded.bootstrap_servers) == [], lambda: str(left(guarded.bootstrap_servers)))


@pytest.mark.parametrize(
    ("needed", "check"),
    [
        (Right("topic", "{output}", "Write", prefix=False), "output orders"),
        (Right("topic", "outbox-progress-", "Write", prefix=True), "transactions"),
        (Right("topic", "outbox-progress-", "Read", prefix=True), "isolation"),
        (Right("group", "outbox-publisher-progress", "Describe", prefix=False), "isolation"),
        (Right("transactional_id", "outbox-", "Write", prefix=True), "transactions"),
    ],
    ids=lambda each: f"{each.operation} {each.name}" if isinstance(each, Right) else each,
)
def test_a_right_that_is_missing_is_named(
    guarded: SecuredKafka,
    guarded_config: Path,
    needed: Right,
    check: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    guarded.revoke(needed.acl(output="orders"))
    if needed.operation != "Describe":
        # Without any right Kafka does not even describe the topic, and says that instead.
        guarded.allow(Right(needed.kind, needed.name, "Describe", needed.prefix).acl(output="orders"))
    try:
        code, found, _ = run(guarded_config, capsys)
    finally:
        guarded.allow(needed.acl(output="orders"))
    assert (code, found[check]["outcome"]) == (16, "failed"), found


def test_without_the_right_to_make_a_topic_nothing_is_tried(
    guarded: SecuredKafka, guarded_config: Path
) -> None:
    create = Right("topic", "outbox-progress-", "Create", prefix=True)
    guarded.revoke(create.acl())
    try:
        with pytest.raises(RefusedError, match=r"Create on topic 'outbox-progress-check-"):
            command.check_cluster(guarded_config)
    finally:
        guarded.allow(create.acl())


def test_without_the_right_to_delete_it_the_topic_is_named(
    guarded: SecuredKafka, guarded_config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    guarded.revoke(DELETE.acl())
    try:
        code, _, errors = run(guarded_config, capsys)
    finally:
        guarded.allow(DELETE.acl())
    (name,) = left(guarded.bootstrap_servers)
    assert code == 0
    assert f"--delete --topic {name}" in errors
    admin = AdminClient({"bootstrap.servers": guarded.bootstrap_servers})
    admin.delete_topics([name])[name].result()
