"""A batch wakes the lanes that it has rows for, and transactions that come too often wait for each other's batches."""

import threading

import pytest
from pydantic import SecretStr

from publisher.lane.transaction_pace import TransactionPace
from publisher.outbox.wakeup import Wakeup
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


def test_a_few_transactions_do_not_wait_and_many_wait_for_their_turn() -> None:
    now = [1_000.0]
    pace = TransactionPace(100, lambda: now[0])
    assert [pace.wait_s() for _ in range(100)] == [0.0] * 100
    for wait in (0.01, 0.02, 0.03):
        assert abs(pace.wait_s() - wait) < 1e-6
    now[0] += 10
    assert pace.wait_s() == 0.0


def test_a_steady_stream_below_the_rate_never_waits() -> None:
    now = [1_000.0]
    pace = TransactionPace(100, lambda: now[0])
    for _ in range(1_000):
        now[0] += 1 / 90
        assert pace.wait_s() == 0.0
