"""A process ends because lanes stand still only when nobody is left who delivers anything."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import SecretStr

from publisher.assignment import lane_workers, membership
from publisher.assignment.lane_workers import LaneWorkers
from publisher.assignment.membership import View
from publisher.delivery.handover import HandoverTurns
from publisher.monitoring.health import ProcessHealth
from publisher.outbox.wakeup import Wakeup
from publisher.protocol.cursor import Epoch
from publisher.protocol.stop_reasons import StoppedError, StopReason
from publisher.relay import Relay
from service.errors import ContinuityError
from service.observability.loops import Loops
from service.settings import PostgresSettings, PublisherSettings, Settings

EPOCH = Epoch(1, 1, 2)
STOP = StoppedError(StopReason.KAFKA_LOST, "gone")


def look_and_wait(
    monkeypatch: pytest.MonkeyPatch,
    living: list[str],
    holders: dict[int, str | None],
    lanes: dict[int, StoppedError | None],
    ended: frozenset[int] = frozenset(),
) -> None:
    """Let the process `me` look once and wait for a moment."""
    settings = Settings.model_construct(
        postgres=PostgresSettings(dsn=SecretStr("postgresql://nowhere")), publisher=PublisherSettings()
    )
    stop = threading.Event()
    relay = Relay(settings, stop)
    topics = SimpleNamespace(brokers=lambda: 1)
    shared: Any = SimpleNamespace(
        holder="me", settings=settings, topics=topics, outbox=None, turns=HandoverTurns()
    )
    workers = LaneWorkers(
        shared, Wakeup(settings.postgres, stop, Loops(60)), threading.Event(), ProcessHealth()
    )

    def worker(lane: int, *_: object, **__: object) -> Any:
        return SimpleNamespace(
            stopped=lanes[lane], bug=None, done=False, leave=stop.set, run=lambda _turn: stop.wait()
        )

    monkeypatch.setattr(lane_workers, "Lane", lambda _context, _epoch, lane: lane)
    monkeypatch.setattr(lane_workers, "Worker", worker)
    processes: Any = [SimpleNamespace(process_id=process) for process in living]
    view = View(processes, EPOCH, holders, ended)
    monkeypatch.setattr(membership, "read_view", lambda *_: view)
    monkeypatch.setattr(membership, "add_lanes", lambda *_: None)
    monkeypatch.setattr(membership, "release_other_epochs", lambda *_: None)
    beating: Any = SimpleNamespace(failed=None, hung=frozenset(), take_lanes=lambda _takes: None)
    workers.start(EPOCH, lanes)
    try:
        relay.assign_lanes(None, shared, workers, beating)  # type: ignore[arg-type]
        relay.wait(0.0, workers, beating)
    finally:
        workers.end(30)


@pytest.mark.guarantee(122)
def test_the_only_process_ends_when_every_lane_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ContinuityError, match=r"(?s)no lane can continue.*lane 0: .*lane 1: "):
        look_and_wait(monkeypatch, ["me"], {0: "me", 1: "me"}, {0: STOP, 1: STOP})
    with pytest.raises(ContinuityError, match="lane 0"):
        look_and_wait(monkeypatch, ["me"], {0: "me", 1: "me"}, {0: STOP}, frozenset({1}))


@pytest.mark.guarantee(122)
def test_a_process_whose_own_lanes_stand_still_stands_by_while_another_delivers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    look_and_wait(monkeypatch, ["me", "other"], {0: "me", 1: "other"}, {0: STOP})


def test_a_process_stands_by_while_one_lane_continues_or_is_being_resumed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    look_and_wait(monkeypatch, ["me"], {0: "me", 1: "me"}, {0: STOP, 1: None})
    look_and_wait(monkeypatch, ["me"], {0: "me", 1: "host:1 (resume)"}, {0: STOP})
