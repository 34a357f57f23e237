"""A heartbeat renews every lease but those of lanes that hang, which it believes at the second look."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from publisher.assignment import heartbeat as module
from publisher.assignment.heartbeat import ProcessHeartbeat
from publisher.monitoring.health import LaneHealth, ProcessHealth
from service.observability.loops import Loops
from service.settings import PostgresSettings, PublisherSettings
from tests.support.waiting import wait_until


class FakeConnection:
    """Notes whom each beat calls late, and how often the others were told."""

    def __init__(self) -> None:
        self.late: list[list[int]] = []
        self.takes_lanes: list[bool] = []
        self.told = 0

    def execute(self, _sql: object, parameters: dict[str, Any] | None = None) -> None:
        if parameters is None:
            self.told += 1
        elif "late_lanes" in parameters:
            self.late.append(parameters["late_lanes"])
            self.takes_lanes.append(parameters["takes_lanes"])


def test_a_lane_that_is_late_at_two_beats_loses_its_lease_and_the_others_hear_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connection, now = FakeConnection(), [100.0]
    monkeypatch.setattr(module, "connect", lambda *_, **__: nullcontext(connection))
    monkeypatch.setattr(module, "check_unchanged", lambda *_: None)
    health, settings = ProcessHealth(), SimpleNamespace(publisher=PublisherSettings(lease_s=1, poll_ms=100))
    settings.postgres = PostgresSettings()
    context: Any = SimpleNamespace(settings=settings, holder="me", outbox=None)
    beating = ProcessHeartbeat(context, health)
    with Loops(60, lambda: now[0]).loop("lane 1/3", 5) as loop:
        lane, in_time = LaneHealth(1, 3), LaneHealth(1, 4)
        lane.loop = loop
        health.worker_started(lane)
        health.worker_started(in_time)
        now[0] += 5.1
        beating.start()
        wait_until(lambda: len(connection.late) >= 3, "three beats")
        assert connection.late[:3] == [[], [3], [3]]
        assert connection.told == 2
        loop.turn()
        wait_until(lambda: connection.late[-1] == [], "a beat that finds it in time")
        assert not beating.hung
        assert all(connection.takes_lanes)
        beating.take_lanes(False)
        wait_until(lambda: not connection.takes_lanes[-1], "a beat that says so")
        beating.end(30)
