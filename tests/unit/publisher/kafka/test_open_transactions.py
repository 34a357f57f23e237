"""What a lane waits for is fixed when it first meets a topic, over every retry, until it has written there."""

from collections.abc import Iterable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import IsolationLevel, KafkaError, KafkaException

from publisher.kafka.open_transactions import OpenTransactions
from publisher.kafka.topics import OutputTopic, Topics
from publisher.protocol.stop_reasons import StoppedError, StopReason
from service.kafka.renewable_client import RenewableClient

TOPIC = {"t": OutputTopic("id", 2, 1_000_000)}


class FakeTopics:
    """Two partitions, with their ends for either reader."""

    def __init__(self) -> None:
        self.high = {0: 10, 1: 10}
        self.stable = {0: 10, 1: 10}
        self.asked = 0

    def ends(self, topic: str, partitions: Iterable[int], *, committed: bool = False) -> dict[int, int]:
        self.asked += 1
        return {each: (self.stable if committed else self.high)[each] for each in partitions}


@pytest.fixture
def kafka() -> FakeTopics:
    return FakeTopics()


@pytest.fixture
def lane(kafka: FakeTopics) -> OpenTransactions:
    topics: Any = kafka
    return OpenTransactions(topics, lambda: False, wait_s=0.0)


def test_a_topic_without_open_transactions_is_asked_for_once_in_a_tenure(
    kafka: FakeTopics, lane: OpenTransactions
) -> None:
    lane.begin()
    lane.wait(TOPIC)
    asked = kafka.asked
    lane.wait(TOPIC)
    assert kafka.asked == asked
    lane.begin()
    lane.wait(TOPIC)
    assert kafka.asked == 2 * asked


def test_an_offset_below_the_ends_of_before_tells_that_the_topic_was_made_again(
    lane: OpenTransactions,
) -> None:
    """Also in a tenure's first transaction."""
    lane.begin()
    assert lane.unmet(TOPIC) == ["t"]
    lane.wait(TOPIC)
    assert lane.unmet(TOPIC) == []
    assert lane.begun_anew({"t": {"0": [10, 12], "1": [14, 15]}}) == set()
    assert lane.begun_anew({"t": {"0": [13, 13]}}) == set()
    assert lane.begun_anew({"t": {"0": [13, 14]}}) == {"t"}
    lane.begin()
    lane.wait(TOPIC)
    assert lane.begun_anew({"t": {"1": [0, 3]}}) == {"t"}


def test_an_open_transaction_stops_the_lane_with_its_place(kafka: FakeTopics, lane: OpenTransactions) -> None:
    kafka.stable[1] = 4
    lane.begin()
    with pytest.raises(StoppedError, match=r"t\[1\] from offset 4 on") as stopped:
        lane.wait(TOPIC)
    assert stopped.value.reason is StopReason.OPEN_TRANSACTION
    assert stopped.value.retry


def test_transactions_that_begin_while_it_waits_are_not_waited_for(
    kafka: FakeTopics, lane: OpenTransactions
) -> None:
    kafka.stable[1] = 4
    lane.begin()
    with pytest.raises(StoppedError):
        lane.wait(TOPIC)
    # The first one has ended, another is open behind it.
    kafka.high[1], kafka.stable[1] = 30, 10
    lane.begin()
    lane.wait(TOPIC)


def test_after_it_has_written_everything_open_is_waited_for(
    kafka: FakeTopics, lane: OpenTransactions
) -> None:
    lane.begin()
    lane.wait(TOPIC)
    kafka.high[1] = 30
    lane.begin()
    with pytest.raises(StoppedError, match=r"t\[1\] from offset 10 on"):
        lane.wait(TOPIC)


class Leader:
    """An administrative client, whose every request reaches this leader of both partitions."""

    def __init__(self, high: int, stable: int) -> None:
        self.high, self.stable = high, stable

    def poll(self, _timeout: float, /) -> None:
        """Nothing to tell."""

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""

    def list_offsets(self, wanted: Any, *, isolation_level: Any, **_: Any) -> "dict[Any, Future[Any]]":
        is_committed = isolation_level is IsolationLevel.READ_COMMITTED
        answer: Future[Any] = Future()
        answer.set_result(SimpleNamespace(offset=self.stable if is_committed else self.high))
        return dict.fromkeys(wanted, answer)


def test_an_old_leaders_end_from_before_the_last_tenure_hides_no_open_transaction() -> None:
    leader = Leader(high=10, stable=10)
    admin: Any = leader
    topics = Topics(RenewableClient(lambda _: admin), timeout_s=1, create=False)
    lane = OpenTransactions(topics, lambda: False, wait_s=0.0)
    lane.begin()
    lane.wait(TOPIC)
    topics.written.take({("t", 1): 14})  # the tenure's transaction, which fails
    # The old leader, cut off from its cluster, knows no record of it; of the lane's next tenure or another lane's first one.
    for tenure in (lane, OpenTransactions(topics, lambda: False, wait_s=0.0)):
        tenure.begin()
        with pytest.raises(
            KafkaException, match=r"t\[1\] says that it ends at 10, .* written up to 15"
        ) as old:
            tenure.wait(TOPIC)
        assert old.value.args[0].code() == KafkaError._TIMED_OUT  # tried again
        assert tenure.unmet(TOPIC) == ["t"]
    leader.high, leader.stable = 15, 10
    with pytest.raises(StoppedError, match=r"t\[1\] from offset 10 on"):
        lane.wait(TOPIC)
    leader.stable = 15
    lane.wait(TOPIC)
