"""What `publisher check-cluster` says of clusters that lack something."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, Uuid
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]

from publisher.cluster_check import checks
from publisher.cluster_check.checks import CHECKS, explain, topic_checks
from publisher.cluster_check.scratch import Scratch
from publisher.protocol.stop_reasons import StoppedError, StopReason, TopicMissingError
from service.commands.checks import CheckAnswer, ServerCheck, run_checks
from service.settings import Settings

SENT_AND_READ = (
    "transaction timeout",
    "transactions",
    "fencing",
    "last stable offset",
    "isolation",
    "timestamps",
    "headers",
    "tombstones",
)


def named(name: str, among: list[ServerCheck[Scratch]] | None = None) -> ServerCheck[Scratch]:
    """The check of that name."""
    (found,) = [each for each in (among or CHECKS) if each.name == name]
    return found


@pytest.fixture
def pretending() -> Iterator[str]:
    """Servers of a broker that answers every request of a transaction, and does nothing of it: librdkafka's own stand-in."""
    broker = Producer({"test.mock.num.brokers": 1, "log_level": 0})
    brokers = broker.list_topics(timeout=10).brokers
    yield ",".join(f"{each.host}:{each.port}" for each in brokers.values())
    del broker


def test_a_broker_that_only_answers_is_found_out(pretending: str) -> None:
    settings = Settings.model_validate({"kafka": {"bootstrap_servers": pretending, "request_timeout_s": 20}})
    scratch = Scratch(settings, lambda: False)
    maker = Producer({"bootstrap.servers": pretending, "log_level": 0})
    maker.list_topics(scratch.topic, timeout=10)
    found = run_checks([named(name) for name in SENT_AND_READ], scratch, explain, quiet=True)
    assert {each.name: each.outcome for each in found} == {
        "transaction timeout": "ok",
        "transactions": "ok",
        "fencing": "failed",
        "last stable offset": "not supported",
        "isolation": "not supported",
        "timestamps": "ok",
        "headers": "ok",
        "tombstones": "ok",
    }
    isolation = next(each for each in found if each.name == "isolation")
    assert "fenced" in isolation.found
    assert all(each.remedy for each in found if each.outcome != "ok")


class FakeScratch:
    """A scratch topic about which `checks` is told by patches."""

    def __init__(self, **settings: Any) -> None:
        self.settings = Settings.model_validate(settings)
        self.topic, self.admin, self.timeout_s = "scratch", None, 1
        self.settings_refused: str | None = None
        self.sent_ms = 1_000
        self.described: Callable[[list[str]], Any] = lambda names: {
            name: SimpleNamespace(partitions=3) for name in names
        }
        self.topics = SimpleNamespace(describe=lambda names: self.described(names))

    def give_up(self) -> bool:
        return False


def ask(check: ServerCheck[Scratch], scratch: FakeScratch) -> CheckAnswer:
    """The answer about a fake."""
    as_scratch: Any = scratch
    (found,) = run_checks([check], as_scratch, explain, quiet=True)
    return CheckAnswer(found.outcome, found.found, found.remedy)


def refusing(code: int) -> Callable[..., Any]:
    """A request that Kafka refuses."""

    def request(*_: Any, **__: Any) -> Any:
        raise KafkaException(KafkaError(code, "Write on topic 'x' is needed"))

    return request


def topic(replicas: int = 1, topic_id: object = None) -> Any:
    """A description of a topic of two partitions."""
    partition = SimpleNamespace(replicas=list(range(replicas)))
    return SimpleNamespace(topic_id=topic_id or Uuid(1, 2), partitions=[partition, partition])


def policy(value: str) -> Callable[..., Any]:
    """The settings of any topic."""
    return lambda _admin, names, *_: {
        name: {"cleanup.policy": SimpleNamespace(value=value)} for name in names
    }


def knowing(**topics: Any) -> Callable[..., Any]:
    """Brokers that know these topics."""
    return lambda _admin, names, *_: {name: topics[name] for name in names if name in topics}


@pytest.mark.parametrize(
    ("topic_id", "outcome"), [(Uuid(0, 0), "not supported"), (Uuid(1, 2), "ok")], ids=["none", "some"]
)
def test_topics_without_ids(monkeypatch: pytest.MonkeyPatch, topic_id: object, outcome: str) -> None:
    monkeypatch.setattr(checks, "known_topics", knowing(scratch=topic(topic_id=topic_id)))
    assert ask(named("topic ids"), FakeScratch()).outcome == outcome


@pytest.mark.parametrize(
    ("refused", "became", "outcome"),
    [(None, "compact", "ok"), (None, "delete", "failed"), ("not allowed here", "compact", "failed")],
)
def test_a_cluster_that_does_not_make_the_progress_topic_as_asked(
    monkeypatch: pytest.MonkeyPatch, refused: str | None, became: str, outcome: str
) -> None:
    monkeypatch.setattr(checks, "topic_configs", policy(became))
    scratch = FakeScratch()
    scratch.settings_refused = refused
    given = ask(named("compaction"), scratch)
    assert given.outcome == outcome
    assert (refused or "") in given.found


@pytest.mark.parametrize(
    ("known", "outcome", "found"),
    [
        (knowing(__transaction_state=topic(3)), "ok", "3 replicas"),
        (knowing(__transaction_state=topic(1)), "warning", "1 replica:"),
        (knowing(), "warning", "does not show"),
        (refusing(KafkaError.TOPIC_AUTHORIZATION_FAILED), "warning", "does not show"),
        (refusing(KafkaError._TIMED_OUT), "failed", ""),
    ],
    ids=["three", "one", "hidden", "refused", "away"],
)
def test_the_transaction_log(
    monkeypatch: pytest.MonkeyPatch, known: Callable[..., Any], outcome: str, found: str
) -> None:
    monkeypatch.setattr(checks, "known_topics", known)
    given = ask(named("transaction log"), FakeScratch())
    assert (given.outcome, found in given.found) == (outcome, True)


def test_times_that_the_broker_replaces(monkeypatch: pytest.MonkeyPatch) -> None:
    def told(kind: int, at_ms: int) -> CheckAnswer:
        monkeypatch.setattr(checks, "_record", lambda *_: SimpleNamespace(timestamp=lambda: (kind, at_ms)))
        return ask(named("timestamps"), FakeScratch())

    assert told(1, 1_000).outcome == "ok"
    assert told(1, 1_001).outcome == "failed"
    assert told(2, 1_001).outcome == "warning"


def test_what_was_never_sent_is_not_said_to_be_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = FakeScratch()
    monkeypatch.setattr(scratch, "read", list, raising=False)
    given = ask(named("headers"), scratch)
    assert (given.outcome, given.remedy) == ("failed", "see the checks above")


def test_the_topics_that_the_settings_name_are_checked_and_no_prefixes() -> None:
    settings = Settings.model_validate(
        {"source": {"topics": ["events"]}, "publisher": {"output_topics": ["orders", "audit.*"]}}
    )
    assert [each.name for each in topic_checks(settings)] == ["output orders", "input events"]


def output(scratch: FakeScratch) -> CheckAnswer:
    """The answer about an output topic."""
    return ask(named("output orders", topic_checks(scratch.settings)), scratch)


@pytest.mark.parametrize(
    ("allowed", "outcome"),
    [(True, "ok"), (False, "failed")],
)
def test_an_output_topic_must_be_writable(
    monkeypatch: pytest.MonkeyPatch, allowed: bool, outcome: str
) -> None:
    monkeypatch.setattr(
        checks, "_may", lambda _s, name, operation: allowed and operation is AclOperation.WRITE
    )
    assert output(FakeScratch(publisher={"output_topics": ["orders"]})).outcome == outcome


@pytest.mark.parametrize(("create", "outcome"), [(True, "ok"), (False, "failed")])
def test_an_output_topic_that_is_missing(create: bool, outcome: str) -> None:
    def missing(names: list[str]) -> Any:
        raise TopicMissingError(names[0], "output topic 'orders' does not exist. Create it")

    scratch = FakeScratch(publisher={"output_topics": ["orders"], "create_topics": create})
    scratch.described = missing
    given = output(scratch)
    assert given.outcome == outcome
    assert create or "Create it" in given.remedy


@pytest.mark.parametrize(
    ("known", "cleanup", "may", "outcome"),
    [
        (knowing(events=topic()), "delete", True, "ok"),
        (knowing(events=topic()), "delete", False, "warning"),
        (knowing(events=topic()), "compact,delete", True, "warning"),
        (knowing(), "delete", True, "warning"),
        (refusing(KafkaError.TOPIC_AUTHORIZATION_FAILED), "delete", True, "warning"),
    ],
    ids=["fine", "unreadable", "compacted", "missing", "hidden"],
)
def test_an_input_topic_of_a_job_that_may_have_another_user_warns_only(
    monkeypatch: pytest.MonkeyPatch, known: Callable[..., Any], cleanup: str, may: bool, outcome: str
) -> None:
    monkeypatch.setattr(checks, "known_topics", known)
    monkeypatch.setattr(checks, "topic_configs", policy(cleanup))
    monkeypatch.setattr(checks, "_may", lambda *_: may)
    scratch = FakeScratch(source={"topics": ["events"]})
    given = ask(named("input events", topic_checks(scratch.settings)), scratch)
    assert (given.outcome, bool(given.remedy)) == (outcome, outcome != "ok")


@pytest.mark.parametrize(
    ("error", "outcome", "text"),
    [
        (KafkaException(KafkaError(KafkaError.UNSUPPORTED_VERSION)), "not supported", "3.1 or newer"),
        (KafkaException(KafkaError(KafkaError._UNSUPPORTED_FEATURE)), "not supported", "3.1 or newer"),
        (
            KafkaException(KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "Write is needed")),
            "failed",
            "rights-in-kafka",
        ),
        (KafkaException(KafkaError(KafkaError._TIMED_OUT)), "failed", "brokers"),
        (
            StoppedError(StopReason.TRANSACTIONS_REFUSED, "transaction_timeout_ms is too much. Lower it"),
            "failed",
            "Lower it",
        ),
    ],
    ids=["version", "feature", "right", "silence", "stopped"],
)
def test_what_an_error_means(error: Exception, outcome: str, text: str) -> None:
    given = explain(error)
    assert given is not None
    assert given.outcome == outcome
    assert text in given.remedy


def test_a_bug_is_no_finding() -> None:
    assert explain(ValueError("a bug")) is None
