"""What Kafka says of topics, where the broker that answers is not the one that leads them."""

from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from devstack.processes.port import LOOPBACK
from publisher.kafka.topics import Topics
from service.errors import UnavailableError
from service.kafka.client import admin_client
from service.kafka.renewable_client import RenewableClient
from service.kafka.topics import existing_topics, topic_configs
from service.settings import KafkaSettings
from spark_job.input.topics import InputTopics, KafkaInput
from tests.support.servers.nameless_broker import NamelessBroker

UNRESOLVABLE = "kafka-internal.invalid"


@pytest.fixture(params=[(UNRESOLVABLE, 9092), (LOOPBACK, 1)], ids=["no such name", "nobody there"])
def settings(request: pytest.FixtureRequest) -> Iterator[KafkaSettings]:
    """Of a cluster whose only broker cannot be reached by the address that it gives."""
    broker = NamelessBroker(request.param)
    with broker.running():
        yield KafkaSettings(bootstrap_servers=broker.bootstrap_servers, request_timeout_s=1)


def test_a_leader_that_does_not_answer_leaves_no_partition_empty(settings: KafkaSettings) -> None:
    """librdkafka answers with the offset -1001 and no error: a lane would take its progress for lost, a start its input for cut."""
    topics = Topics(admin_client(settings), timeout_s=1, create=False)
    # On a busy machine librdkafka itself may be too late to ask who the leader is.
    silent = "the leader of events/0 does not answer|Failed to query partition leaders"
    with pytest.raises(KafkaException, match=silent) as raised:
        topics.ends("events", [0])
    assert raised.value.args[0].code() == KafkaError._TIMED_OUT
    kafka = KafkaInput(settings, ["events"], "")
    with pytest.raises(UnavailableError, match=f"{silent}|which cannot be reached from here"):
        kafka.bounds(InputTopics({"events": "id"}, {"events": [0]}), "latest")
    kafka.close()


def test_a_broker_that_cannot_be_reached_by_the_address_that_it_gives_is_named(
    settings: KafkaSettings,
) -> None:
    kafka = KafkaInput(settings, ["events"], "")
    with pytest.raises(UnavailableError, match=r"which cannot be reached from here: .*advertised\.listeners"):
        kafka.describe()
    kafka.close()


class CountedRequests:
    """A client that answers every request for settings at once, and counts them."""

    def __init__(self) -> None:
        self.asked_about: list[int] = []

    def poll(self, _timeout: float, /) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def describe_configs(self, resources: list[Any], **_: Any) -> "dict[Any, Future[Any]]":
        self.asked_about.append(len(resources))
        answers: dict[Any, Future[Any]] = {resource: Future() for resource in resources}
        for resource, answer in answers.items():
            answer.set_result({"name": resource.name})
        return answers


def test_the_settings_of_many_topics_take_few_requests() -> None:
    client: Any = CountedRequests()
    names = [f"topic-{number}" for number in range(1_200)]
    found: Any = topic_configs(RenewableClient(lambda _: client), names, 5.0)
    assert found == {name: {"name": name} for name in names}
    assert client.asked_about == [500, 500, 200]


class LaggingBrokers:
    """Brokers that do not know a topic yet, and a controller that has it."""

    def poll(self, _timeout: float, /) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def describe_topics(self, wanted: Any, **_: Any) -> "dict[str, Future[Any]]":
        return {name: failed(KafkaError.UNKNOWN_TOPIC_OR_PART) for name in wanted.topic_names}

    def create_topics(self, new: list[Any], **_: Any) -> "dict[str, Future[Any]]":
        return {each.topic: failed(KafkaError.TOPIC_ALREADY_EXISTS) for each in new}


def failed(code: int) -> "Future[Any]":
    future: Future[Any] = Future()
    future.set_exception(KafkaException(KafkaError(code)))
    return future


def test_a_topic_that_the_brokers_do_not_know_yet_is_not_taken_as_missing() -> None:
    admin: Any = RenewableClient(lambda _: LaggingBrokers())
    said = "the brokers do not know 'new' yet, but the controller does not report a missing topic"
    with pytest.raises(KafkaException, match=said):
        existing_topics(admin, ["new"], 5.0, missing_s=0.0)


def test_a_cluster_that_cannot_be_reached_fills_no_log(
    settings: KafkaSettings, capfd: pytest.CaptureFixture[str]
) -> None:
    """librdkafka would write ten lines a second."""
    topics = Topics(admin_client(settings), timeout_s=1, create=False)
    with pytest.raises(KafkaException):
        topics.ends("events", [0])
    assert capfd.readouterr() == ("", "")
