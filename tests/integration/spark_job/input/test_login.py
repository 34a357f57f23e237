"""`[kafka] login` on a broker that checks tokens: publisher, input reader and Spark's own client log in by one plugin."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from structlog.testing import capture_logs

from devstack.topics import create_topics
from publisher.kafka.clients import committed_reader, lane_producer
from service.errors import UnavailableError
from service.kafka.client import KafkaAdmin, admin_client
from service.settings import JobSettings, KafkaSettings
from spark_job.input.columns import RecordColumns
from spark_job.input.reading import committed_records
from spark_job.input.source import read_records
from spark_job.input.topics import KafkaInput
from spark_job.spark.lazy_session import LazySession
from spark_job.spark.session import load_added_jars
from spark_job.stream.kafka_login import java_login
from tests.support.secured.kafka import SecuredKafka, right
from tests.support.secured.tokens import ALLOWED, TokenServer, install_plugin
from tests.support.waiting import wait_until

INPUT, CLIENT, SECRET = "session-in", "the-service", "client-Hs3vK8"
LIFE_S, REAUTHENTICATE_MS = 8, 2_000


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenServer]:
    """Where the plugin fetches tokens, which live for some seconds."""
    folder = tmp_path_factory.mktemp("tokens")
    server = TokenServer(folder, CLIENT, SECRET, LIFE_S)
    install_plugin(folder, server.plugin())
    with server.running(), pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
        yield server


@pytest.fixture(scope="module")
def kafka(tokens: TokenServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    """A broker that takes them, and no connection for longer than one of them."""
    server = SecuredKafka(tmp_path_factory.mktemp("guarded"), tokens.broker_settings(), REAUTHENTICATE_MS)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("JDK_JAVA_OPTIONS", f"{ALLOWED}={tokens.keys.as_uri()}")
            server.start()
        create_topics(server.bootstrap_servers, {INPUT: (1, {})})
        producer = Producer({"bootstrap.servers": server.bootstrap_servers})
        for number in range(3):
            producer.produce(INPUT, b"%d" % number)
        assert producer.flush(30) == 0
        allowed = [("topic", INPUT, each) for each in ("read", "write", "describe_configs")]
        allowed += [("group", "outbox-", "read"), ("transactional_id", "outbox-", "write")]
        server.allow(*(right(*each, prefix=True, user=CLIENT) for each in allowed))
        yield server
    finally:
        server.destroy()


@pytest.fixture(scope="module")
def by_login(kafka: SecuredKafka) -> KafkaSettings:
    """`[kafka]` with one line for the login."""
    return KafkaSettings(
        bootstrap_servers=kafka.secured_servers,
        login="tested",
        options={"ssl.ca.location": str(kafka.authority)},
    )


def asks(admin: KafkaAdmin) -> bool:
    return INPUT in admin.ask(lambda client: client.list_topics(INPUT, timeout=10)).topics


def asks_again(admin: KafkaAdmin) -> bool:
    """As `asks`; False where the broker ended the connection, as it does with one that logs in again too late. A refusal is raised."""
    try:
        return asks(admin)
    except KafkaException as error:
        if error.args[0].code() != KafkaError._TRANSPORT:
            raise
        return False


def test_the_publishers_and_the_jobs_clients_log_in(by_login: KafkaSettings) -> None:
    client = KafkaInput(by_login, [INPUT], "")
    topics = client.describe()
    assert list(client.bounds(topics, "readable").values()) == [3]
    client.close()
    producer = lane_producer(by_login, "outbox-login", 60_000, None)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(INPUT, b"3")
    producer.commit_transaction(30)
    with committed_reader(by_login, timeout_s=30) as reader:
        assert sum(map(len, reader.read({(INPUT, 0): (0, 4)}))) == 4
    # As an executor has them: data, without the callback.
    portable = by_login.portable_client()
    assert sum(map(len, committed_records(portable, INPUT, 0, 0, 4, 30))) == 4


def test_a_client_outlives_its_tokens_and_an_endpoint_that_is_away_is_told_without_them(
    by_login: KafkaSettings, tokens: TokenServer
) -> None:
    admin = admin_client(by_login)
    assert asks(admin)
    given = tokens.given
    wait_until(lambda: asks_again(admin) and tokens.given >= given + 2, "tokens after the first ones' end")
    tokens.is_down = True
    try:
        with capture_logs() as logs:
            wait_until(lambda: _is_refused(admin), "a login that gave no token")
    finally:
        tokens.is_down = False
    failures = [each for each in logs if each["event"] == "login_failed"]
    assert failures
    assert all("HTTPError: HTTP Error 503" in each["reason"] for each in failures)
    assert "eyJ" not in str(logs), "the beginning of a token"
    wait_until(lambda: not _is_refused(admin), "the endpoint's return")
    admin.close()


def _is_refused(admin: KafkaAdmin) -> bool:
    try:
        asks(admin)
    except UnavailableError as error:
        return "gave no token: HTTPError" in str(error)
    except Exception:  # noqa: BLE001 - whatever a client that loses its login says
        return False
    return False


def test_sparks_own_client_logs_in_by_the_same_plugin(
    by_login: KafkaSettings, tokens: TokenServer, tmp_path: Path
) -> None:
    lazy = LazySession(JobSettings(cache=str(tmp_path), master="local[1]", driver_memory="1g"))
    try:
        spark: Any = lazy.get()
        load_added_jars(spark)
        frame = read_records(
            spark,
            by_login,
            [INPUT],
            RecordColumns(),
            start="earliest",
            max_events=100,
            login=java_login(spark, by_login),
        )
        query = frame.writeStream.format("memory").queryName("found").trigger(availableNow=True).start()
        query.awaitTermination()
        values = {bytes(row["value"]) for row in spark.sql("SELECT value FROM found").collect()}
        assert values >= {b"0", b"1", b"2"}
    finally:
        lazy.stop()
    assert tokens.refused == 0
