"""A page reads of each value no more than it shows: the console is a part of `publisher run`, and a producer decides what events hold."""

from collections.abc import Iterator

import psycopg
import pytest

from publisher.console.consumers import Consumers
from publisher.console.pages import PAGES, PageRequest, read_page
from publisher.console.reader import Connection, PageData
from publisher.console.schemas import MOST_VALUE_BYTES, ShownValues
from service.settings import Settings
from spark_job import OutputEvent
from spark_job.outputs.pgcopy import nullable
from tests.support.outbox.letters import WHOLE, failed, settings, with_letters
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
