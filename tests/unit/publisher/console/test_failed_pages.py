"""A page that fails holds nothing of what it had read, though its process hardly looks for cycles."""

import asyncio
import gc
import weakref
from contextlib import nullcontext
from typing import Any, NoReturn

import psycopg
import pytest
from structlog.testing import capture_logs

from publisher.console.app import ConsoleApp
from publisher.console.pages import PAGES
from service.settings import ConsoleSettings, KafkaSettings, PostgresSettings, Settings

PAGES_ASKED = 200


class Rows:
    """What a page had read."""


class OneConnection:
    def connection(self) -> Any:
        return nullcontext()


@pytest.mark.parametrize("failure", [psycopg.OperationalError("away"), RuntimeError("a defect")])
def test_two_hundred_failed_pages_hold_nothing(failure: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[weakref.ref[Rows]] = []

    def read(*_: object) -> NoReturn:
        rows = Rows()
        held.append(weakref.ref(rows))
        raise type(failure)(*failure.args)

    monkeypatch.setattr("publisher.console.app.read_page", read)
    settings = Settings.model_construct(
        postgres=PostgresSettings(), kafka=KafkaSettings(), console=ConsoleSettings()
    )
    reader: Any = OneConnection()

    async def ask() -> None:
        app = ConsoleApp(settings, reader)
        page = next(each for each in PAGES if each.without_postgres is None)
        for _ in range(PAGES_ASKED):
            assert (await app._render(page, {}, part=False))[0] in (500, 503)

    gc.disable()
    try:
        with capture_logs():
            asyncio.run(ask())
        assert len(held) == PAGES_ASKED
        assert [each for each in held if each() is not None] == []
    finally:
        gc.enable()
