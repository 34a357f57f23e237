"""The scratch topic is made as the publisher makes its progress topic, and always removed."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from publisher.cluster_check.scratch import Scratch
from publisher.protocol.stop_reasons import StoppedError, StopReason
from service.errors import RefusedError, UnavailableError
from service.kafka.renewable_client import Answer
from service.settings import Settings


class FakeAdmin:
    """Answers every request by one error, or by none; keeps which requests were made."""

    def __init__(self, error: KafkaException | None = None) -> None:
        self.error = error
        self.asked: list[str] = []

    def answers(self, request: Callable[[Any], Any], *_: Any) -> dict[str, Answer[None]]:
        """As RenewableClient does."""
        client = SimpleNamespace(
            delete_topics=lambda names, **_: self._take("delete", names),
            create_topics=lambda new, **_: self._take("create", [each.topic for each in new]),
        )
        return {name: Answer(None, self.error) for name in request(client)}

    def _take(self, what: str, names: list[str]) -> list[str]:
        self.asked += [f"{what} {name}" for name in names]
        return names


def error(code: int) -> KafkaException:
    return KafkaException(KafkaError(code, "Create on topic 'x' is needed"))


def scratch(monkeypatch: pytest.MonkeyPatch, admin: FakeAdmin, made: Exception | None = None) -> Scratch:
    """A scratch topic whose creation as a progress topic ends with `made`."""

    def ensure(*_: Any, **__: Any) -> None:
        if made is not None:
            raise made

    found = Scratch(Settings(), lambda: False)
    monkeypatch.setattr(found, "admin", admin)
    monkeypatch.setattr(found, "topics", SimpleNamespace(cluster_id=lambda: "here", ensure_progress=ensure))
    return found


def test_its_name_is_covered_by_the_rights_on_progress_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    found = scratch(monkeypatch, FakeAdmin())
    assert found.topic.startswith("outbox-progress-check-")
    assert len(found.topic) <= 249
    assert scratch(monkeypatch, FakeAdmin()).topic != found.topic


def test_a_cluster_that_refuses_the_settings_gets_a_plain_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    admin = FakeAdmin()
    refused = StoppedError(StopReason.PROGRESS_REFUSED, "too many replicas", retry=True)
    found = scratch(monkeypatch, admin, refused)
    assert found.create() == "here"
    assert admin.asked == [f"create {found.topic}"]
    assert found.settings_refused == "progress_topic_refused: too many replicas"


@pytest.mark.parametrize(
    ("code", "kind"),
    [(KafkaError.TOPIC_AUTHORIZATION_FAILED, RefusedError), (KafkaError._TIMED_OUT, UnavailableError)],
    ids=["no right", "no answer"],
)
def test_without_it_nothing_can_be_tried(
    monkeypatch: pytest.MonkeyPatch, code: int, kind: type[Exception]
) -> None:
    with pytest.raises(kind):
        scratch(monkeypatch, FakeAdmin(), error(code)).create()


def test_what_kafka_may_have_made_is_removed_although_it_did_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    admin = FakeAdmin()
    found = scratch(monkeypatch, admin, error(KafkaError._TIMED_OUT))
    with pytest.raises(UnavailableError):
        found.create()
    assert found.remove() is None
    assert admin.asked == [f"delete {found.topic}"]


def test_what_was_never_asked_for_is_not_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    admin = FakeAdmin()
    assert scratch(monkeypatch, admin).remove() is None
    assert admin.asked == []


@pytest.mark.parametrize(
    ("code", "is_left"),
    [
        (KafkaError.UNKNOWN_TOPIC_OR_PART, False),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, True),
        (KafkaError._TIMED_OUT, True),
    ],
    ids=["gone", "no right", "no answer"],
)
def test_a_topic_that_may_be_left_is_told(monkeypatch: pytest.MonkeyPatch, code: int, is_left: bool) -> None:
    found = scratch(monkeypatch, FakeAdmin(error(code)))
    found.create()
    assert (found.remove() is not None) is is_left
