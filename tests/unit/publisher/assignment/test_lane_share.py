"""A process ends because lanes stand still only when nobody is left who delivers anything."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from pydantic import SecretStr

from publisher.assignment import lane_workers, membership
from publisher.assignment.lane_share import LaneShare
from publisher.assignment.lane_workers import LaneWorkers
from publisher.assignment.membership import View
from publisher.delivery.handover import HandoverTurns
from publisher.monitoring.health import ProcessHealth
from publisher.outbox.wakeup import Wakeup
from publisher.protocol.epochs import Epoch
from publisher.protocol.stop_reasons import StoppedError, StopReason
from service.errors import ContinuityError
from service.observability.loops import Loops
from service.settings import PostgresSettings, PublisherSettings, Settings

EPOCH = Epoch(1, 1, 2)
STOP = StoppedError(StopReason.KAFKA_LOST, "gone")


def update_and_check(
    monkeypatch: pytest.MonkeyPatch,
    living: list[str],
    holders: dict[int, str | None],
    lanes: dict[int, StoppedError | None],
    ended: frozenset[int] = frozenset(),
    *,
    kafka: bool = True,
) -> list[bool]:
    """Let the process `me` read the assignment once, and check itself; return whether it said each time that it takes lanes.

    `kafka`: whether Kafka answers.
    """
    settings = Settings.model_construct(
        postgres=PostgresSettings(dsn=SecretStr("postgresql://nowhere")), publisher=PublisherSettings()
    )
    stop = threading.Event()
    takes_lanes: list[bool] = []

    def ends(*_: object, **__: object) -> None:
        if not kafka:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    topics = SimpleNamespace(brokers=lambda: 1, ends=ends)
    shared: Any = SimpleNamespace(
        holder="me",
        settings=settings,
        topics=topics,
        progress_topic="outbox-progress",
        outbox=None,
        turns=HandoverTurns(),
    )
    health = ProcessHealth()
    workers = LaneWorkers(shared, Wakeup(settings.postgres, stop, Loops(60)), threading.Event(), health)

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
    monkeypatch.setattr(membership, "claim", lambda _connection, _epoch, lanes, *_: list(lanes))
    beating: Any = SimpleNamespace(failed=None, hung=frozenset(), take_lanes=takes_lanes.append)
    workers.start(EPOCH, lanes)
    try:
        share = LaneShare(shared, workers, beating, health)
        share.update(None)  # type: ignore[arg-type]
        share.check()
    finally:
        workers.end(30)
    return takes_lanes


@pytest.mark.guarantee(122)
def test_the_only_process_ends_when_every_lane_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ContinuityError, match=r"(?s)no lane can continue.*lane 0: .*lane 1: "):
        update_and_check(monkeypatch, ["me"], {0: "me", 1: "me"}, {0: STOP, 1: STOP})
    with pytest.raises(ContinuityError, match="lane 0"):
        update_and_check(monkeypatch, ["me"], {0: "me", 1: "me"}, {0: STOP}, frozenset({1}))


@pytest.mark.guarantee(122)
def test_a_process_whose_own_lanes_stand_still_stands_by_while_another_delivers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    update_and_check(monkeypatch, ["me", "other"], {0: "me", 1: "other"}, {0: STOP})


def test_a_process_stands_by_while_one_lane_continues_or_is_being_resumed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    update_and_check(monkeypatch, ["me"], {0: "me", 1: "me"}, {0: STOP, 1: None})
    update_and_check(monkeypatch, ["me"], {0: "me", 1: "host:1 (resume)"}, {0: STOP})


@pytest.mark.guarantee(101)
def test_a_process_without_lanes_counts_among_the_living_only_while_kafka_answers_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held: dict[int, str | None] = {0: "other", 1: "other"}
    assert update_and_check(monkeypatch, ["me", "other"], held, {}) == [True]
    assert update_and_check(monkeypatch, ["me", "other"], held, {}, kafka=False) == [False]
    # Where it is the only one, or has a lane, it takes part.
    assert update_and_check(monkeypatch, ["me"], held, {}, kafka=False) == [True]
    assert update_and_check(monkeypatch, ["me", "other"], held | {1: "me"}, {1: None}, kafka=False) == [True]
    # A lane that is free is claimed at once.
    free: dict[int, str | None] = {0: None, 1: "other"}
    assert update_and_check(monkeypatch, ["me", "other"], free, {0: None}, kafka=False) == [True]
