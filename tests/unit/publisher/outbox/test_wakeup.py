"""A batch wakes the lanes that it has rows for, and transactions that come too often wait for each other's batches."""

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import SecretStr

from publisher.lane.transaction_pace import TransactionPace
from publisher.outbox import wakeup as wakeups
from publisher.outbox.wakeup import Wakeup
from service.lifecycle.backoff import Backoff
from service.observability.loops import Loops
from service.settings import PostgresSettings


def woken(channel: str, payload: str) -> list[int]:
    """Which of the lanes 0 to 12 a notification wakes; -1 stands for the publisher itself."""
    wakeup = Wakeup(PostgresSettings(dsn=SecretStr("postgresql://nowhere")), threading.Event(), Loops(60))
    events = {lane: wakeup.subscribe(lane) for lane in range(13)} | {-1: wakeup.subscribe_publishers()}
    wakeup.take(channel, payload)
    return sorted(lane for lane, event in events.items() if event.is_set())


def test_a_batch_wakes_only_the_lanes_that_it_has_rows_for() -> None:
    assert woken("outbox_batch", "7 0,3,12") == [0, 3, 12]
    assert woken("outbox_batch", "7 12") == [12]
    assert woken("outbox_batch", "7 ") == []


def test_where_no_lanes_are_named_all_are_woken() -> None:
    assert woken("outbox_batch", "") == woken("outbox_batch", "7") == list(range(13))


def test_news_of_publishers_wake_no_lane() -> None:
    assert woken("outbox_publisher", "") == [-1]


@pytest.mark.parametrize(
    "payload",
    ["7 ²", "7 ①,١", "7 " + "9" * 7_000, "7 -1,+1, 1 ,0x1,1_0,00", "² ", "\n ,,,", "7  3", "7 None", "7 3,²"],
)
def test_no_payload_whoever_sends_it_ends_the_listener(payload: str) -> None:
    assert woken("outbox_batch", payload) in ([], [3])
    assert woken("outbox_publisher", payload) == [-1]
    assert woken("another", payload) in ([], [-1])


class Flood:
    """A stop and a connection on which each read finds notifications, until ten seconds have passed."""

    def __init__(self, payload: str) -> None:
        self.now, self.reads, self.payload = 100.0, 0, payload

    def is_set(self) -> bool:
        return self.now >= 110

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        return self.is_set()

    def execute(self, statement: str) -> None:
        assert "LISTEN" in statement

    def notifies(self, timeout: float, stop_after: int) -> Iterator[Any]:
        self.reads += 1
        assert stop_after == 1
        self.now += 1e-4
        for channel in ("outbox_batch", "outbox_publisher"):
            yield SimpleNamespace(channel=channel, payload=self.payload)


def test_a_flood_of_notifications_costs_a_hundred_reads_a_second_and_two_looks_of_the_publisher(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever may connect to the database may send them."""
    looks: list[float] = []

    class Publisher(threading.Event):
        def set(self) -> None:
            looks.append(flood.now)

    flood: Any = Flood("7 " + "9," * 3_000)
    monkeypatch.setattr(wakeups, "time", SimpleNamespace(monotonic=lambda: flood.now))
    wakeup = Wakeup(PostgresSettings(dsn=SecretStr("postgresql://nowhere")), flood, Loops(60))
    wakeup._publishers.add(Publisher())
    wakeup._listen(flood, Backoff(least_s=0.1, most_s=5.0), SimpleNamespace(turn=lambda: None))  # type: ignore[arg-type]
    assert 100 < flood.reads <= 1_001
    # Also the last news of a flood are passed on.
    assert 10 <= len(looks) <= 22
    assert flood.now - looks[-1] < 1


def test_news_that_come_at_once_are_told_once_and_the_last_is_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr(wakeups, "time", SimpleNamespace(monotonic=lambda: now[0]))
    wakeup = Wakeup(PostgresSettings(dsn=SecretStr("postgresql://nowhere")), threading.Event(), Loops(60))
    event = wakeup.subscribe_publishers()
    for seconds, told in ((0.0, True), (0.1, False), (0.1, False)):
        now[0] += seconds
        wakeup.take("outbox_publisher", "")
        assert event.is_set() == told
        event.clear()
    now[0] += 0.5
    wakeup._wake_publishers()
    assert event.is_set()


def test_a_few_transactions_do_not_wait_and_many_wait_for_their_turn() -> None:
    now = [1_000.0]
    pace = TransactionPace(100, lambda: now[0])
    assert [pace.take_turn() for _ in range(100)] == [0.0] * 100
    for wait in (0.01, 0.02, 0.03):
        assert abs(pace.take_turn() - wait) < 1e-6
    now[0] += 10
    assert pace.take_turn() == 0.0


def test_a_steady_stream_below_the_rate_never_waits() -> None:
    now = [1_000.0]
    pace = TransactionPace(100, lambda: now[0])
    for _ in range(1_000):
        now[0] += 1 / 90
        assert pace.take_turn() == 0.0
