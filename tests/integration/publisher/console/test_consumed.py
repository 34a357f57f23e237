"""The page of a session goes on to the rows of its consumers, in a Postgres of their own."""

import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from devstack.databases import PostgresServer
from devstack.kafka import KafkaServer
from outbox_consumer import Output
from service.settings import Settings
from tests.support.console import console_of
from tests.support.consumer.consuming import consume_there
from tests.support.outbox.batches import Outbox, Session, read_offsets
from tests.support.outbox.deliveries import deliver
from tests.support.queries import query

SECRET = "4111 1111 1111 1111"
GROUP = "<b>billing</b>"


@pytest.fixture
def consumer_database(postgres: PostgresServer) -> Iterator[str]:
    """DSN of an empty database of a consumer."""
    name = f"test_{uuid.uuid4().hex}"
    yield postgres.create_database(name)
    postgres.drop_database(name)


def refuse_bad(_connection: Any, output: Output) -> None:
    if output.value == b"bad":
        raise ValueError(f"no such <i>card</i>: {SECRET}")


def words(page: str) -> str:
    """The text of a page's table of outputs, on one line."""
    table = page[page.index('id="outputs-title"') :]
    return re.sub(r"\s+", " ", table[: table.index("</section>")])


def test_the_page_of_a_session_shows_the_rows_of_consumers(
    outbox: Outbox, settings: Settings, kafka: KafkaServer, consumer_database: str, tmp_path: Path
) -> None:
    outbox.batch({"wanted": [Session([b"good", b"bad"], 100_001)]})
    deliver(settings)
    with psycopg.connect(consumer_database) as connection:
        consume_there(connection, kafka.bootstrap_servers, GROUP, outbox.topic, apply=refuse_bad, attempts=1)
    outbox.batch({"later": [Session([b"x"], 100_002)]})
    deliver(settings)
    read_offsets(outbox.dsn)
    login = f"reader_{uuid.uuid4().hex}"
    query(consumer_database, f'CREATE ROLE "{login}" LOGIN')
    file = tmp_path / "consumer.dsn"
    file.write_text(make_conninfo(consumer_database, user=login, password="hush"), "utf-8")
    try:
        with console_of(
            settings, consumer_dsn_file=file, statement_timeout_ms=500, show_values=True
        ) as console:
            refused = words(console.shown("/session?key=wanted"))
            assert "permission denied for table outbox_consumer_" in refused
            assert "Grant SELECT on them" not in refused.partition("permission denied")[0]
            for table in ("position", "seen", "letter"):
                query(consumer_database, f'GRANT SELECT ON outbox_consumer_{table} TO "{login}"')
            shown = words(console.shown("/session?key=wanted"))
            assert "consumer &lt;b&gt;billing&lt;/b&gt;: consumed at 2" in shown
            assert f"no such &lt;i&gt;card&lt;/i&gt;: {SECRET}, from {outbox.topic} partition" in shown
            assert "no consumer has it (yet)" in words(console.shown("/session?key=later"))
            with psycopg.connect(consumer_database) as blocker:
                blocker.execute("LOCK TABLE outbox_consumer_seen IN ACCESS EXCLUSIVE MODE")
                slow = words(console.shown("/session?key=wanted"))
            assert "Consumers: the consumer&#39;s database cannot be read: canceling statement" in slow
            assert "hush" not in refused + shown + slow
            assert query(
                consumer_database,
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND usename = %s",
                login,
            ) == [(0,)]
        with console_of(settings, consumer_dsn_file=file) as masked:
            hidden = words(masked.shown("/session?key=wanted"))
            assert "ValueError: …, from" in hidden
            assert SECRET not in hidden
        with console_of(settings) as without:
            assert "consumer" not in words(without.shown("/session?key=wanted"))
    finally:
        query(consumer_database, f'DROP OWNED BY "{login}"')
        query(consumer_database, f'DROP ROLE "{login}"')
