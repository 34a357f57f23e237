"""Offsets for lag tools: one request at a time, the newest offsets last, and no failure is more than a warning."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest
import structlog
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition

from service.kafka.renewable_client import RenewableClient
from spark_job.input.group_offsets import GroupOffsets
from tests.support.waiting import wait_until

REFUSED = KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED, "not yours"))


class Admin:
    """Keeps what is asked until the test answers."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, Future[Any]]] = []
        self.waits: set[float] = set()

    def alter_consumer_group_offsets(
        self, changes: list[ConsumerGroupTopicPartitions], request_timeout: float
    ) -> dict[str, Future[Any]]:
        self.waits.add(request_timeout)
        (change,) = changes
        (offset,) = change.topic_partitions or []
        self.asked.append((offset.offset, Future()))
        return {change.group_id: self.asked[-1][1]}

    def poll(self, _timeout: float, /) -> None:
        """No complaints."""

    def __exit__(self, *_: object) -> None:
        """Nothing to end."""

    def answer(self) -> None:
        self.asked[-1][1].set_result(ConsumerGroupTopicPartitions("group", [TopicPartition("t", 0, 1)]))

    def wait_for(self, *offsets: int) -> None:
        wait_until(lambda: [offset for offset, _ in self.asked] == list(offsets), f"requests of {offsets}")


def at(offset: int) -> list[TopicPartition]:
    return [TopicPartition("t", 0, offset)]


@pytest.fixture
def clients() -> list[Admin]:
    """All that were made."""
    return []


@pytest.fixture
def shown(clients: list[Admin]) -> Iterator[Callable[..., GroupOffsets]]:
    """Makes GroupOffsets, which end with the test."""
    made: list[GroupOffsets] = []

    def make(_complaints: Any) -> Admin:
        clients.append(Admin())
        return clients[-1]

    def show(group: str = "group", timeout_s: float = 60, lasts_s: float = 60) -> GroupOffsets:
        made.append(GroupOffsets(RenewableClient(make, lasts_s), group, timeout_s))  # type: ignore[arg-type]
        return made[-1]

    yield show
    for each in made:
        each.close()


def test_the_newest_offsets_follow_once_the_request_under_way_is_answered(
    shown: Callable[..., GroupOffsets], clients: list[Admin]
) -> None:
    offsets = shown()
    (admin,) = clients
    offsets.show(at(10))
    admin.wait_for(10)
    offsets.show(at(20))
    offsets.show(at(30))
    admin.answer()
    admin.wait_for(10, 30)
    admin.answer()
    offsets.show(at(40))
    admin.wait_for(10, 30, 40)
    admin.answer()
    assert len(clients) == 1


def test_a_refusal_is_said_once_and_the_next_batch_asks_again(
    shown: Callable[..., GroupOffsets], clients: list[Admin]
) -> None:
    offsets = shown()
    (admin,) = clients
    with structlog.testing.capture_logs() as logged:
        for number in range(1, 4):
            offsets.show(at(number))
            admin.wait_for(*range(1, number + 1))
            admin.asked[-1][1].set_exception(REFUSED)
        offsets.close()
    assert [line["event"] for line in logged] == ["group_offsets_not_committed"]


def test_a_request_without_an_answer_is_given_up_with_its_client_before_librdkafka_does(
    shown: Callable[..., GroupOffsets], clients: list[Admin]
) -> None:
    """librdkafka 2.16 aborts the process where a coordinator answers after the timeout of such a request."""
    offsets = shown(timeout_s=0.5, lasts_s=0.1)
    with structlog.testing.capture_logs() as logged:
        offsets.show(at(10))
        wait_until(lambda: len(logged) == 1, "the warning")
        offsets.show(at(20))
        wait_until(lambda: clients[-1].asked[-1:] and clients[-1].asked[-1][0] == 20, "the next request")
        clients[-1].answer()
        offsets.close()
    assert [line["event"] for line in logged] == ["group_offsets_not_committed", "kafka_client_renewed"]
    assert len(clients) > 2
    assert all(len(each.asked) == 1 for each in clients)
    assert all(each.waits == {3_600} for each in clients)


def test_closing_does_not_wait_for_an_answer_that_never_comes(
    monkeypatch: pytest.MonkeyPatch, shown: Callable[..., GroupOffsets], clients: list[Admin]
) -> None:
    monkeypatch.setattr("spark_job.input.group_offsets._GOODBYE_S", 0.05)
    offsets = shown()
    offsets.show(at(10))
    clients[0].wait_for(10)
    offsets.close()
    assert "group-offsets" not in {thread.name for thread in threading.enumerate()}


def test_without_a_group_nothing_is_asked(shown: Callable[..., GroupOffsets], clients: list[Admin]) -> None:
    offsets = shown(group="")
    offsets.show(at(10))
    offsets.close()
    assert clients[0].asked == []
