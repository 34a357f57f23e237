"""What devstack promises of its servers: their data, their port, and that they never outlive their owner."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from devstack.databases import ExternalPostgres, PostgresServer
from devstack.kafka import Kafka, KafkaServer
from devstack.postgres import Postgres
from devstack.processes.errors import DevstackError
from devstack.processes.process import ProcessIdentity, birth, launch
from devstack.stack import KAFKA_VARIABLE, POSTGRES_VARIABLE, Stack
from devstack.state import STATE_FILE
from devstack.topics import create_topics
from tests.support.waiting import wait_until

TIMEOUT_S = 60.0


def _devstack(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "devstack", *arguments, "--dir", str(directory)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _produce(bootstrap: str, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    failures: list[KafkaError | None] = []
    producer.produce(topic, value, on_delivery=lambda error, _: failures.append(error))
    producer.flush(TIMEOUT_S)
    assert failures == [None]


def _consume_one(bootstrap: str, topic: str) -> bytes | None:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": f"{topic}-readers", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    message = consumer.poll(TIMEOUT_S)
    consumer.close()
    assert message is not None
    assert message.error() is None
    return message.value()


def test_up_gives_working_servers_that_keep_data_and_address_where_asked_and_down_leaves_nothing(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "stack"
    up = _devstack(directory, "up", "--fast", "--spark-workers", "1", "--json")
    assert up.returncode == 0, up.stderr
    report = json.loads(up.stdout)
    pids = [report[name]["pid"] for name in ("postgres", "kafka", "spark-master", "spark-worker-1")]
    dsn, bootstrap = report["postgres"]["dsn"], report["kafka"]["bootstrap_servers"]
    try:
        with psycopg.connect(dsn) as connection:
            assert connection.info.dbname == "outbox"
            connection.execute("CREATE TABLE kept ()")
        create_topics(bootstrap, {"greetings": (1, {})})
        _produce(bootstrap, "greetings", b"hello")
        assert _consume_one(bootstrap, "greetings") == b"hello"

        registered = "Successfully registered with master " + report["spark-master"]["url"]
        assert registered in Path(report["spark-worker-1"]["log"]).read_text("utf-8")

        again = _devstack(directory, "up")
        assert f"export OUTBOX_POSTGRES__DSN={dsn}\n" in again.stdout
        assert f"export OUTBOX_JOB__MASTER={report['spark-master']['url']}\n" in again.stdout
        assert json.loads(_devstack(directory, "status", "--json").stdout) == report

        assert _devstack(directory, "down", "--keep-data").returncode == 0
        assert _devstack(directory, "status").returncode == 1
        after = json.loads(_devstack(directory, "up", "--fast", "--json").stdout)
        assert (after["postgres"]["dsn"], after["kafka"]["bootstrap_servers"]) == (dsn, bootstrap)
        pids += [after[name]["pid"] for name in ("postgres", "kafka")]
        with psycopg.connect(dsn) as connection:
            assert connection.execute("SELECT count(*) FROM kept").fetchone() == (0,)
    finally:
        down = _devstack(directory, "down")
    assert down.returncode == 0, down.stderr
    assert [birth(pid) for pid in pids] == [None] * 6
    assert not directory.exists()
    gone = _devstack(directory, "status", "--json")
    assert gone.returncode == 1
    assert json.loads(gone.stdout)["kafka"]["running"] is False


def test_down_spares_a_process_that_only_has_the_recorded_pid(tmp_path: Path) -> None:
    bystander = launch("bystander", ["sleep", "600"], log=tmp_path / "log")
    try:
        recorded = {"process": {"pid": bystander.identity.pid, "birth": "another boot/1"}, "port": 0}
        (tmp_path / STATE_FILE).write_text(json.dumps({"postgres": recorded, "kafka": recorded}))
        down = _devstack(tmp_path, "down")
        assert down.returncode == 0, down.stderr
        assert "was not running" in down.stderr
        assert bystander.is_alive()
    finally:
        bystander.kill()


def test_an_unreadable_state_file_is_an_explained_failure(tmp_path: Path) -> None:
    (tmp_path / STATE_FILE).write_text("{}}")
    failed = _devstack(tmp_path, "status")
    assert failed.returncode == 2
    assert "is not a state file of devstack" in failed.stderr


@pytest.mark.parametrize("end", [Postgres.stop, Postgres.kill])
def test_postgres_keeps_data_and_port_over_a_stop_or_kill(
    own_postgres: Postgres, end: Callable[[Postgres], None]
) -> None:
    dsn = own_postgres.create_database("kept")
    end(own_postgres)
    assert not own_postgres.is_running()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(dsn)
    own_postgres.start()
    assert own_postgres.dsn("kept") == dsn
    psycopg.connect(dsn).close()


def test_kafka_keeps_data_and_port_over_a_stop_and_a_kill(own_kafka: Kafka) -> None:
    bootstrap = own_kafka.bootstrap_servers
    create_topics(bootstrap, {"kept": (3, {})})
    _produce(bootstrap, "kept", b"before")
    own_kafka.stop()
    own_kafka.start()
    own_kafka.kill()
    with pytest.raises(KafkaException):
        AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(timeout=1)
    own_kafka.start()
    assert own_kafka.bootstrap_servers == bootstrap
    assert _consume_one(bootstrap, "kept") == b"before"


def test_a_server_that_died_by_itself_is_started_again(own_postgres: Postgres) -> None:
    identity = own_postgres.process.identity
    os.kill(identity.pid, signal.SIGQUIT)
    wait_until(lambda: not own_postgres.is_running(), "Postgres gone", TIMEOUT_S)
    own_postgres.start()
    assert own_postgres.process.identity != identity
    psycopg.connect(own_postgres.dsn()).close()


def test_a_stopped_server_keeps_its_port_from_others(own_postgres: Postgres) -> None:
    own_postgres.stop()
    with pytest.raises(DevstackError, match="is not running"):
        own_postgres.pause()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", own_postgres.port))
    own_postgres.start()


def test_a_paused_postgres_answers_nobody_until_resumed(own_postgres: Postgres) -> None:
    own_postgres.pause()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(own_postgres.dsn(), connect_timeout=2)
    own_postgres.resume()
    psycopg.connect(own_postgres.dsn()).close()


def test_a_paused_kafka_answers_nobody_until_resumed(own_kafka: Kafka) -> None:
    client = AdminClient({"bootstrap.servers": own_kafka.bootstrap_servers})
    own_kafka.pause()
    with pytest.raises(KafkaException):
        client.list_topics(timeout=1)
    own_kafka.resume()
    assert client.list_topics(timeout=TIMEOUT_S).brokers


def test_killing_the_owner_leaves_no_process(tmp_path: Path) -> None:
    # The owner's forked child lives on with all its files open, as a multiprocessing worker would.
    program = """
import json, os, sys, time
from pathlib import Path
import psutil
from devstack.stack import Stack
stack = Stack.from_environment_or_start(Path(sys.argv[1]), fast=True, environment={})
pids = [child.pid for child in psutil.Process().children(recursive=True)]
worker = os.fork()
if worker == 0:
    os.close(1)
    time.sleep(600)
print(json.dumps({"worker": worker, "pids": pids}), flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        told = json.loads(owner.stdout.readline())
        servers = [ProcessIdentity(pid, born) for pid in told["pids"] if (born := birth(pid))]
        # Two guardians, the JVM, the postmaster and its helpers.
        assert len(servers) > 5
        owner.kill()
    try:
        wait_until(lambda: not any(each.is_alive() for each in servers), "all servers gone", TIMEOUT_S)
    finally:
        os.kill(told["worker"], signal.SIGKILL)
        Stack.local(tmp_path).destroy()


def test_a_failing_start_shows_the_end_of_the_servers_log(tmp_path: Path) -> None:
    postgres = Postgres(tmp_path / "postgres", fast=True, settings={"max_connections": "plenty"})
    with pytest.raises(DevstackError, match=r'(?s)Postgres ended while starting.*max_connections.*"plenty"'):
        postgres.start()
    assert not postgres.is_running()
    postgres.destroy()
    kafka = Kafka(tmp_path / "kafka", settings={"log.retention.ms": "plenty"})
    with pytest.raises(DevstackError, match=r"(?s)Kafka.*plenty for configuration log\.retention\.ms"):
        kafka.start()
    kafka.destroy()


def test_a_command_that_cannot_be_executed_is_a_failing_start(tmp_path: Path) -> None:
    with pytest.raises(DevstackError, match=r"(?s)thing ended while starting.*No such file"):
        launch("thing", ["/nowhere/thing"], log=tmp_path / "log")


@pytest.mark.faults
def test_two_stacks_run_side_by_side(tmp_path: Path) -> None:
    with Stack.local(tmp_path / "one", fast=True) as one, Stack.local(tmp_path / "two", fast=True) as two:
        one.create_database("mine")
        create_topics(one.kafka.bootstrap_servers, {"mine": (1, {})})
        assert not two.postgres.has_database("mine")
        assert (
            "mine" not in AdminClient({"bootstrap.servers": two.kafka.bootstrap_servers}).list_topics().topics
        )
        running = [server.process.identity for stack in (one, two) for server in stack.local_servers]
    assert len(running) == 4
    assert not any(each.is_alive() for each in running)
    assert list(tmp_path.glob("*/*")) == []


def test_a_database_is_cloned_from_its_template_and_dropped_under_its_users(postgres: PostgresServer) -> None:
    with psycopg.connect(postgres.create_database("cloned_from")) as connection:
        connection.execute("CREATE TABLE marker ()")
    with closing(psycopg.connect(postgres.create_database("clone", template="cloned_from"))) as connection:
        assert connection.execute("SELECT count(*) FROM marker").fetchone() == (0,)
        postgres.drop_database("clone")
    postgres.drop_database("cloned_from")
    postgres.drop_database("cloned_from")
    assert not postgres.has_database("clone")
    assert not postgres.has_database("cloned_from")


def test_servers_named_by_the_environment_are_used_and_none_is_started(
    postgres: PostgresServer, kafka: KafkaServer, tmp_path: Path
) -> None:
    environment = {POSTGRES_VARIABLE: postgres.dsn(), KAFKA_VARIABLE: kafka.bootstrap_servers}
    with Stack.from_environment_or_start(tmp_path / "unused", environment=environment) as stack:
        assert stack.local_servers == []
        assert stack.postgres.has_database("postgres")
        assert stack.kafka.bootstrap_servers == kafka.bootstrap_servers
    assert not (tmp_path / "unused").exists()
    assert postgres.has_database("postgres")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            "postgresql://me:pw@db:5433/app?sslmode=require",
            "postgresql://me:pw@db:5433/a%20b?sslmode=require",
        ),
        ("host=db user=me dbname=app", "host=db user=me dbname='a b'"),
    ],
)
def test_another_database_of_an_external_server_keeps_the_rest_of_the_dsn(given: str, expected: str) -> None:
    server = ExternalPostgres(given)
    assert server.dsn() == given
    assert psycopg.conninfo.conninfo_to_dict(server.dsn("a b")) == psycopg.conninfo.conninfo_to_dict(expected)


def test_topics_are_created_once_and_a_differing_one_is_refused(
    kafka: KafkaServer, topic_prefix: str
) -> None:
    topics = {f"{topic_prefix}a": (2, {"cleanup.policy": "compact"}), f"{topic_prefix}b": (1, {})}
    create_topics(kafka.bootstrap_servers, topics)
    create_topics(kafka.bootstrap_servers, topics)
    with pytest.raises(DevstackError, match=f"{topic_prefix}b' exists with 1 partitions, 5 were asked for"):
        create_topics(kafka.bootstrap_servers, {f"{topic_prefix}b": (5, {})})
    with pytest.raises(DevstackError, match="could not be created"):
        create_topics(kafka.bootstrap_servers, {"no/such/name": (1, {})})


def test_topics_are_created_on_the_kafka_that_the_environment_names(
    kafka: KafkaServer, topic_prefix: str
) -> None:
    """As after `eval "$(devstack up)"`; and without it the message says what to do."""
    names = [f"{topic_prefix}a", f"{topic_prefix}b"]
    command = [sys.executable, "-m", "devstack", "create-topics", *names, "--partitions", "3"]
    environment = {**os.environ, KAFKA_VARIABLE: kafka.bootstrap_servers}
    subprocess.run(command, env=environment, capture_output=True, check=True)
    found = AdminClient({"bootstrap.servers": kafka.bootstrap_servers}).list_topics(timeout=30).topics
    assert [len(found[name].partitions) for name in names] == [3, 3]

    environment.pop(KAFKA_VARIABLE)
    refused = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "devstack up" in refused.stderr


def test_psql_asks_the_outbox_that_the_environment_names(postgres: PostgresServer) -> None:
    """As after `eval "$(devstack up)"`; and without it the message says what to do."""
    command = [sys.executable, "-m", "devstack", "psql", "-Atc", "SELECT 1 + 1"]
    environment = {**os.environ, POSTGRES_VARIABLE: postgres.dsn()}
    assert (
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout == "2\n"
    )

    environment.pop(POSTGRES_VARIABLE)
    refused = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "devstack up" in refused.stderr
