"""What a role, a DSN or the environment sets for a session changes neither what is stored nor what is sent."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from psycopg.conninfo import make_conninfo
from typer.testing import CliRunner

from db.connection import connect
from db.migrate import ROLES
from devstack.kafka import KafkaServer
from devstack.topics import create_topics
from publisher.outbox.wakeup import Wakeup
from service.observability.loops import Loops
from service.settings import PostgresSettings
from spark_job import OutputEvent
from tests.support.console import console_of
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
        "retention run --yes": 0,
    },
}
"""Package -> command -> its exit code for what the test leaves behind, with neither service alive."""
LIMIT = {"OUTBOX_RETENTION__KEEP_S": "31536000"}
PATIENCE_S = 30.0


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


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        yield


@contextmanager
def listening(settings: PostgresSettings) -> Iterator[threading.Event]:
    """Yield what a lane's wakeup sets; it listens."""
    stop = threading.Event()
    wakeup = Wakeup(settings, stop, Loops(60))
    woken = wakeup.subscribe(0)
    wakeup.start()
    try:
        assert woken.wait(PATIENCE_S)
        yield woken
    finally:
        stop.set()
        wakeup.join()


def listeners(dsn: str, silent_s: int = 0) -> list[Any]:
    """The server's processes of wakeups that have done nothing for so long."""
    return query(
        dsn,
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'publisher wakeup'"
        " AND state_change <= clock_timestamp() - %s * interval '1 s'",
        silent_s,
    )


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
        with (
            environment(variables),
            connect(settings.postgres, "spark-job", autocommit=True) as connection,
        ):
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
        runner = CliRunner(env=variables_of(settings) | LIMIT | variables)
        with environment(variables), listening(settings.postgres) as woken:
            listener = listeners(database)
            with console_of(settings) as console:
                assert "rows not delivered" in console.shown("/")
                assert KEY in console.shown(f"/session?key={quote(KEY)}&kafka=1")
                assert KEY in console.shown("/letters?reason=restarted")
            for package, lines in COMMANDS.items():
                app = import_module(f"{package}.cli").app
                for line, code in lines.items():
                    done = runner.invoke(app, line.split())
                    assert done.exit_code == code, f"{package} {line}: {done.output}{done.exception!r}"
            # The connection of before, although it has done nothing for longer than an odd login may.
            wait_until(lambda: listeners(database, silent_s=4) == listeners(database), "its silence")
            assert listeners(database) == listener != []
            woken.clear()
            query(database, "SELECT pg_notify('outbox_batch', '7 0')")
            assert woken.wait(PATIENCE_S)
