"""One answer that an input topic is unknown may come from a broker that has just started; the controller decides."""

import socket
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from service.errors import ContinuityError, HostUnknownError, OutboxError, SettingsError
from service.kafka.renewable_client import RenewableClient
from service.settings import KafkaSettings
from spark_job.input import topics
from spark_job.input.topics import InputTopics, KafkaInput

TOPIC = "events"


class Client:
    """Of a broker that knows the topic from its `known_from`-th answer on. `controller`: what it says to a creation of the topic."""

    def __init__(self, known_from: int, controller: int | None) -> None:
        self._known_from, self._controller = known_from, controller
        self.asked = 0

    def poll(self, _timeout: float, /) -> None:
        """Nothing to tell."""

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""

    def describe_topics(self, _topics: Any, **_: Any) -> dict[str, "Future[Any]"]:
        self.asked += 1
        answer: Future[Any] = Future()
        if self.asked < self._known_from:
            answer.set_exception(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
        else:
            partitions = [SimpleNamespace(id=number) for number in (1, 0)]
            answer.set_result(SimpleNamespace(topic_id="an/id", partitions=partitions))
        return {TOPIC: answer}

    def create_topics(self, _topics: Any, *, validate_only: bool, **_: Any) -> dict[str, "Future[Any]"]:
        assert validate_only
        answer: Future[Any] = Future()
        if self._controller is None:
            answer.set_result(None)
        else:
            answer.set_exception(KafkaException(KafkaError(self._controller)))
        return {TOPIC: answer}


def input_of(monkeypatch: pytest.MonkeyPatch, client: Any) -> KafkaInput:
    monkeypatch.setattr(topics, "admin_client", lambda _settings: RenewableClient(lambda _: client))
    return KafkaInput(KafkaSettings(bootstrap_servers="nowhere:1"), [TOPIC], "")


def test_a_broker_that_does_not_know_a_topic_yet_ends_no_start(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(2, KafkaError.TOPIC_ALREADY_EXISTS)
    found = input_of(monkeypatch, client).describe()
    assert (found.ids, found.partitions) == ({TOPIC: "an_id"}, {TOPIC: [0, 1]})
    assert client.asked == 2


def test_a_topic_that_the_controller_does_not_have_is_missing_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = Client(100, None)
    with pytest.raises(SettingsError, match=r"'events' does not exist at nowhere:1\. Create it"):
        input_of(monkeypatch, client).describe()
    assert client.asked == 1


@pytest.mark.parametrize(
    ("code", "kind"),
    [(KafkaError._TIMED_OUT, HostUnknownError), (KafkaError.UNKNOWN_TOPIC_OR_PART, ContinuityError)],
)
def test_only_a_missing_topic_counts_as_deleted_not_a_name_server_that_is_away(
    monkeypatch: pytest.MonkeyPatch, code: int, kind: type[OutboxError]
) -> None:
    """Both are SettingsErrors at a job's start."""

    def resolve(*_: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "no such name")

    def found(*_: object) -> dict[str, Any]:
        if code == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return {}
        raise KafkaException(KafkaError(code))

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(topics, "existing_topics", found)
    reader = KafkaInput(KafkaSettings(bootstrap_servers="nosuch.invalid:9092"), [TOPIC], "")
    with pytest.raises(OutboxError) as raised:
        reader.describe_unchanged(InputTopics({TOPIC: "an-id"}, {TOPIC: [0]}))
    assert type(raised.value) is kind
