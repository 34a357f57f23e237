"""Polling Postgres for the metrics continues, whatever one poll meets, and an old answer counts as none."""

import threading
import time
from typing import Any

import psycopg
import pytest
from structlog.testing import capture_logs

from db import polled_gauges
from db.polled_gauges import PolledGauges
from service.settings import Settings

GAUGES = {"outbox_things": ("Things.", ["kind"]), "outbox_others": ("Others.", ())}


def shown(gauges: PolledGauges) -> dict[str, list[float]]:
    return {family.name: [sample.value for sample in family.samples] for family in gauges.collect()}


def test_what_the_last_poll_found_is_shown_until_it_is_old_or_postgres_is_lost() -> None:
    nothing = {"outbox_postgres_up": [0]}
    gauges = PolledGauges(GAUGES, max_age_s=60)
    assert shown(gauges) == nothing
    gauges.keep(time.monotonic(), [("outbox_things", ["a"], 3), ("outbox_things", ["b"], 4)])
    assert shown(gauges) == {"outbox_postgres_up": [1], "outbox_things": [3, 4], "outbox_others": []}
    gauges.keep(time.monotonic() - 61, [("outbox_others", (), 5)])
    assert shown(gauges) == nothing
    gauges.keep(time.monotonic(), [("outbox_others", (), 5)])
    assert shown(gauges) == {"outbox_postgres_up": [1], "outbox_things": [], "outbox_others": [5]}
    gauges.lost()
    assert shown(gauges) == nothing


@pytest.mark.guarantee(133)
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

    monkeypatch.setattr(polled_gauges, "connect", lambda *_, **__: Connected())
    settings = Settings.model_validate({"metrics": {"refresh_s": 0.1}})
    with capture_logs() as logs, polled_gauges.polling(settings, "a test", poll, lost.set):
        assert polled_again.wait(30)
    assert [line["event"] for line in logs] == ["metrics_failed"]
