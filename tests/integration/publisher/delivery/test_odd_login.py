"""What a role, a DSN or the environment sets for a session changes neither what is stored nor what is sent."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from pathlib import Path

import pytest
from psycopg.conninfo import make_conninfo
from typer.testing import CliRunner

from db.connection import connect
from db.migrate import ROLES
from devstack.kafka import KafkaServer
from devstack.topics import create_topics
from spark_job import OutputEvent
from tests.support.outbox.deliveries import drained
from tests.support.outbox.odd_login import odd_login
from tests.support.processes.environment import variables_of
from tests.support.processes.publishers import publisher_service, settings_for
from tests.support.queries import query
from tests.support.sink.batches import SinkRun, letter, session
from tests.support.waiting import wait_until
from tests.support.watching import Watcher

KEY = "größe-😀"
HEADER = "grün"
VALUE = "\\x00 'ä' {NULL}".encode() + b"\x00\xff"
ENVIRONMENT = {"PGCLIENTENCODING": "SQL_ASCII", "PGDATESTYLE": "German", "PGTZ": "Pacific/Chatham"}
OPTIONS = "-c client_encoding=LATIN1 -c datestyle=SQL,DMY -c intervalstyle=iso_8601 -c bytea_output=escape"
COMMANDS = {
    "db": {"status": 0},
    "spark_job": {
        "status": 1,
        "savepoint create s": 0,
        "savepoint list": 0,
        "dead-letters list": 0,
        "dead-letters show 1": 0,
    },
    "publisher": {
        "status": 0,
        "audit": 0,
        "audit --kafka": 0,
        "lanes": 0,
        "retention plan": 0,
        "parked list": 0,
        "replay list": 0,
    },
}
"""Package -> command -> its exit code for what the test leaves behind, with neither service alive."""


@contextmanager
def from_the_role(dsn: str) -> Iterator[tuple[str, dict[str, str]]]:
    with odd_login(dsn, *ROLES) as odd:
        yield odd, {}


@contextmanager
def from_the_dsn(dsn: str) -> Iterator[tuple[str, dict[str, str]]]:
    yield make_conninfo(dsn, client_encoding="LATIN1", options=OPTIONS), {}


@contextmanager
def from_the_environment(dsn: str) -> Iterator[tuple[str, dict[str, str]]]:
    yield dsn, ENVIRONMENT


@pytest.mark.parametrize("source", [from_the_role, from_the_dsn, from_the_environment])
def test_bytes_and_texts_arrive_as_they_were_written_and_every_command_works(
    source: Callable[[str], AbstractContextManager[tuple[str, dict[str, str]]]],
    database: str,
    kafka: KafkaServer,
    topic_prefix: str,
    tmp_path: Path,
) -> None:
    topic = f"{topic_prefix}odd"
    create_topics(kafka.bootstrap_servers, {topic: (1, {})})
    with source(database) as (dsn, variables), Watcher(kafka.bootstrap_servers, topic) as watcher:
        settings = settings_for(dsn, kafka.bootstrap_servers)
        output = OutputEvent(topic, VALUE, headers=[(HEADER, "ä"), ("raw", b"\xff")])
        with pytest.MonkeyPatch.context() as environment:
            for name, value in variables.items():
                environment.setenv(name, value)
            with connect(settings.postgres, "spark-job", autocommit=True) as connection:
                run = SinkRun(connection)
                run.plan(0, (0, 0), (100, 0))
                run.write(0, session(KEY, 1, 50, [output]), letter(KEY, 60, 61, "restarted", [VALUE, None]))
        assert query(database, 'SELECT session_key, topics, "values" FROM outbox.session_output') == [
            (KEY, [topic], [VALUE])
        ]
        assert query(database, "SELECT session_key, event_values FROM outbox.dead_letter") == [
            (KEY, [VALUE, None])
        ]
        with publisher_service(settings, tmp_path / "publisher.log", variables) as process:
            wait_until(lambda: drained(database), process.log)
            assert process.terminate() == 0
        watcher.wait_until_all_read()
        (event,) = watcher.seen
        assert (event.key, event.value) == (KEY.encode(), VALUE)
        assert event.own_headers == ((HEADER, "ä".encode()), ("raw", b"\xff"))
        runner = CliRunner(env=variables_of(settings) | variables)
        for package, lines in COMMANDS.items():
            app = import_module(f"{package}.cli").app
            for line, code in lines.items():
                done = runner.invoke(app, line.split())
                assert done.exit_code == code, f"{package} {line}: {done.output}{done.exception!r}"
