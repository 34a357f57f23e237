"""Offsets for lag tools: one request at a time, the newest offsets last, and no failure is more than a warning."""

from concurrent.futures import Future
from typing import Any

import structlog
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition

from spark_job.input.group_offsets import GroupOffsets

REFUSED = KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED, "not yours"))


class Admin:
    """Stands in for a RenewableClient and its client: keeps what is asked until the test answers."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, Future[Any]]] = []
        self.noted: list[KafkaError | None] = []

    @property
    def client(self) -> "Admin":
        return self

    def note(self, error: KafkaError | None) -> None:
        self.noted.append(error)

    def alter_consumer_group_offsets(
        self, changes: list[ConsumerGroupTopicPartitions], request_timeout: float
    ) -> dict[str, Future[Any]]:
        assert request_timeout == 5
        (change,) = changes
        (offset,) = change.topic_partitions or []
        self.asked.append((offset.offset, Future()))
        return {change.group_id: self.asked[-1][1]}

    def answer(self) -> None:
        self.asked[-1][1].set_result(ConsumerGroupTopicPartitions("group", [TopicPartition("t", 0, 1)]))


def at(offset: int) -> list[TopicPartition]:
    return [TopicPartition("t", 0, offset)]


def shown(admin: Any, group: str = "group") -> GroupOffsets:
    return GroupOffsets(admin, group, 5)


def test_the_newest_offsets_follow_once_the_request_under_way_is_answered() -> None:
    admin = Admin()
    offsets = shown(admin)
    for offset in (10, 20, 30):
        offsets.show(at(offset))
    assert [asked for asked, _ in admin.asked] == [10]
    admin.answer()
    admin.answer()
    assert [asked for asked, _ in admin.asked] == [10, 30]
    offsets.show(at(40))
    assert [asked for asked, _ in admin.asked] == [10, 30, 40]
    assert admin.noted == [None, None]


def test_a_refusal_is_said_once_and_the_next_batch_asks_again() -> None:
    admin = Admin()
    offsets = shown(admin)
    with structlog.testing.capture_logs() as logged:
        for offset in (10, 20, 30):
            offsets.show(at(offset))
            admin.asked[-1][1].set_exception(REFUSED)
    assert [line["event"] for line in logged] == ["group_offsets_not_committed"]
    assert [asked for asked, _ in admin.asked] == [10, 20, 30]
    assert [error.code() for error in admin.noted if error is not None] == [REFUSED.args[0].code()] * 3


def test_closing_does_not_wait_for_an_answer_that_never_comes(monkeypatch: Any) -> None:
    monkeypatch.setattr("spark_job.input.group_offsets._GOODBYE_S", 0.05)
    offsets = shown(Admin())
    offsets.show(at(10))
    offsets.close()


def test_without_a_group_nothing_is_asked() -> None:
    admin = Admin()
    shown(admin, group="").show(at(10))
    assert admin.asked == []
