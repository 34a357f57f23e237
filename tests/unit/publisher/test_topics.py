"""One answer that the progress topic is unknown may come from a broker that just started."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from publisher.checks import LaneStoppedError
from publisher.topics import Topics


class FakeAdmin:
    """Does not know the topic for the first `unknown` times."""

    def __init__(self, unknown: int) -> None:
        self._unknown = unknown

    def describe_topics(self, topics: Any, **_: Any) -> dict[str, "Future[Any]"]:
        answer: Future[Any] = Future()
        self._unknown -= 1
        if self._unknown >= 0:
            answer.set_exception(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
        else:
            answer.set_result(SimpleNamespace(partitions=[0, 1]))
        return {"progress": answer}

    def describe_configs(self, resources: list[Any], **_: Any) -> dict[Any, "Future[Any]"]:
        answer: Future[Any] = Future()
        answer.set_result({"cleanup.policy": SimpleNamespace(value="compact")})
        return {resources[0]: answer}


def ensure(unknown: int, missing_s: float, *, stopped: bool = False) -> None:
    admin: Any = FakeAdmin(unknown)
    topics = Topics(admin, timeout_s=1, create=False, give_up=lambda: stopped, missing_s=missing_s)
    topics.ensure_progress("progress", 2, 1, create=False)


def test_a_progress_topic_that_is_unknown_for_a_moment_is_not_lost() -> None:
    ensure(unknown=2, missing_s=60.0)


def test_a_progress_topic_that_stays_unknown_is_lost() -> None:
    with pytest.raises(LaneStoppedError, match="kafka_lost"):
        ensure(unknown=1_000, missing_s=0.0)


def test_a_stop_while_it_is_unknown_is_not_taken_for_a_loss() -> None:
    with pytest.raises(KafkaException, match="stopped"):
        ensure(unknown=1_000, missing_s=60.0, stopped=True)
