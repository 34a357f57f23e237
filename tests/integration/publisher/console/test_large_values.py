"""A page reads of each value no more than it shows: the console is a part of `publisher run`, and a producer decides what events hold."""

from collections.abc import Iterator

import psycopg
import pytest

from publisher.console.consumers import Consumers
from publisher.console.pages import PAGES, PageRequest, read_page
from publisher.console.reader import Connection, PageData
from publisher.console.rendering.schemas import MOST_VALUE_BYTES, ShownValues
from service.settings import Settings
from spark_job import OutputEvent
from spark_job.outputs.pgcopy import nullable
from tests.support.console import console_of
from tests.support.outbox.letters import WHOLE, failed, settings, with_letters
from tests.support.processes.publishers import settings_for
from tests.support.sink.batches import session

LARGE = b"<" * 300_000


@pytest.fixture
def connection(database: str) -> Iterator[Connection]:
    with psycopg.connect(database, autocommit=True) as connection:
        written = with_letters(connection, failed("letter") | {"values": nullable(LARGE) * len(WHOLE)})
        written.plan(1, (100, 50), (200, 50))
        written.write(1, session("k", 110, 120, [OutputEvent("t", LARGE, key=LARGE), OutputEvent("t", None)]))
        yield connection


def page(connection: Connection, found: Settings, path: str, **values: str) -> tuple[PageData, list[int]]:
    """Return what a page reads, and the sizes of all bytes that Postgres sent for it."""
    sizes: list[int] = []

    class Counting(psycopg.adapt.Loader):
        def load(self, data: psycopg.abc.Buffer) -> bytes:
            value = bytes.fromhex(bytes(data)[2:].decode())
            sizes.append(len(value))
            return value

    connection.adapters.register_loader("bytea", Counting)
    (of,) = (each for each in PAGES if each.path == path)
    request = PageRequest(
        connection, found, values, lambda: (), ShownValues(show=True), Consumers(found.console)
    )
    return read_page(of, request), sizes


def test_of_a_letters_events_the_beginnings_are_read(connection: Connection, database: str) -> None:
    found, sizes = page(connection, settings(database), "/letter", id="1")
    shown = [each["value"].text for each in found["events"]]
    assert [text[-15:] for text in shown] == ["(300,000 bytes)"] * len(WHOLE)
    assert sizes == [MOST_VALUE_BYTES] * len(WHOLE)


def test_of_outputs_the_beginnings_are_read(connection: Connection, database: str) -> None:
    found, sizes = page(connection, settings(database), "/session", key="k")
    shown = [(each["value"].text[-15:], each["key"][-15:]) for each in found["outputs"]]
    assert shown == [("(300,000 bytes)", "(300,000 bytes)"), ("null", "k")]
    assert max(sizes) == MOST_VALUE_BYTES


@pytest.mark.parametrize(
    "value",
    [
        "5",
        "[]",
        '"text"',
        '{"a": ' * 3_000 + "1" + "}" * 3_000,
        '{"a": 1' + "0" * 5_000 + "}",
        '{"a": "' + "<" * 300_000 + '"}',
    ],
    ids=["number", "list", "text", "deep", "digits", "large"],
)
def test_no_login_hides_operations_by_what_it_writes_beside_them(database: str, value: str) -> None:
    """Each login writes rows of the operator log, with any JSON."""
    with psycopg.connect(database, autocommit=True) as connection:
        for arguments in ('{"lanes": 16}', value):
            connection.execute(
                "INSERT INTO outbox.operation (os_user, host, command, arguments, result) VALUES ('ann', 'h', 'c', %s, %s)",
                (arguments, arguments),
            )
    with console_of(settings_for(database, "127.0.0.1:1")) as console:
        shown = console.shown("/operations")
    assert "lanes: 16" in shown
    assert len(shown) < 50_000
