"""Polling Postgres for the metrics goes on, whatever one poll meets."""

import threading
from typing import Any

import psycopg
import pytest
from structlog.testing import capture_logs

from db import polling
from service.settings import Settings


def test_a_poll_that_fails_in_whatever_way_is_not_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    polls: list[int] = []
    polled_again, lost = threading.Event(), threading.Event()

    class Connected:
        def __enter__(self) -> None: ...
        def __exit__(self, *_: object) -> None: ...

    def poll(_connection: psycopg.Connection[Any]) -> None:
        polls.append(1)
        if len(polls) <= 2:
            raise KeyError("a column")
        assert lost.is_set()
        polled_again.set()

    monkeypatch.setattr(polling, "connect", lambda *_, **__: Connected())
    settings = Settings.model_validate({"metrics": {"refresh_s": 0.1}})
    with capture_logs() as logs, polling.polling(settings, "a test", poll, lost.set):
        assert polled_again.wait(30)
    assert [line["event"] for line in logs] == ["metrics_failed"]
