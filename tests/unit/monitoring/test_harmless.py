"""What only measures the work never ends it: what failed is logged once, and the next measurement is made."""

import threading
from typing import Any

import psycopg
import pytest
from structlog.testing import capture_logs

from db.monitoring import looking
from db.monitoring.harmless import harmless
from db.settings import Settings


def test_a_failure_is_logged_once_and_stays_with_the_measurement() -> None:
    @harmless("a count in this test")
    def count(by: str) -> int:
        return int(by)

    with capture_logs() as logs:
        assert [count(by) for by in ("1", "none", "none", "2")] == [1, None, None, 2]
    assert [(line["event"], line["what"], line["log_level"]) for line in logs] == [
        ("metrics_failed", "a count in this test", "error")
    ]
    assert isinstance(logs[0]["exc_info"], ValueError)


def test_what_the_caller_wants_to_know_goes_on_to_it() -> None:
    with pytest.raises(ConnectionError), harmless("a look in this test", OSError):
        raise ConnectionResetError


def test_a_look_that_fails_in_whatever_way_is_not_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    seen_again, lost = threading.Event(), threading.Event()

    class Connected:
        def __enter__(self) -> None: ...
        def __exit__(self, *_: object) -> None: ...

    def look(_connection: psycopg.Connection[Any]) -> None:
        looks.append(1)
        if len(looks) <= 2:
            raise KeyError("a column")
        assert lost.is_set()
        seen_again.set()

    monkeypatch.setattr(looking, "connect", lambda *_, **__: Connected())
    settings = Settings.model_validate({"metrics": {"refresh_s": 0.1}})
    with capture_logs() as logs, looking.looking(settings, "a test", look, lost.set):
        assert seen_again.wait(30)
    assert [line["event"] for line in logs] == ["metrics_failed"]
