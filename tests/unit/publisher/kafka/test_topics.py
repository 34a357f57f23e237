"""One answer that the progress topic is unknown may come from a broker that just started; lanes wait for one that is away together."""

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from publisher.kafka.topics import Topics
from publisher.protocol.stop_reasons import StoppedError, StopReason
from service.kafka.renewable_client import RenewableClient

LANES = 16
DEADLINE_S = 30.0


class FakeAdmin:
    """Does not know the topic for the first `unknown` times; `controller`: what it answers to a creation, None where it would create it."""

    def __init__(self, unknown: int, controller: int | None = KafkaError.TOPIC_AUTHORIZATION_FAILED) -> None:
        self._unknown = unknown
        self._controller = controller
        self.created: list[Any] = []
        self.asked = 0
        self.asked_about: list[str | None] = []
        self.topic_id = "id"
        self.refuses: KafkaError | None = None
        """What it answers to a creation that is meant."""

    def poll(self, _timeout: float, /) -> None:
        """Nothing to tell."""

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""

    def list_topics(self, topic: str | None = None, **_: Any) -> Any:
        self.asked_about.append(topic)
        return SimpleNamespace(cluster_id="cluster", brokers={1: None, 2: None, 3: None, 4: None})

    def create_topics(self, topics: list[Any], *, validate_only: bool = False, **_: Any) -> Any:
        answer: Future[Any] = Future()
        if self._controller is not None and validate_only:
            answer.set_exception(KafkaException(KafkaError(self._controller)))
        elif self.refuses is not None and not validate_only:
            answer.set_exception(KafkaException(self.refuses))
        else:
            answer.set_result(None)
        if not validate_only:
            self.created += topics
        return {topics[0].topic: answer}

    def describe_topics(self, topics: Any, **_: Any) -> dict[str, "Future[Any]"]:
        answer: Future[Any] = Future()
        self.asked += 1
        self._unknown -= 1
        if self._unknown >= 0:
            answer.set_exception(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
        else:
            answer.set_result(
                SimpleNamespace(topic_id=self.topic_id, partitions=[SimpleNamespace(replicas=[1, 2])] * 2)
            )
        return {"progress": answer}

    def describe_configs(self, resources: list[Any], **_: Any) -> dict[Any, "Future[Any]"]:
        answer: Future[Any] = Future()
        answer.set_result({"cleanup.policy": SimpleNamespace(value="compact")})
        return {resources[0]: answer}


def topics_of(admin: Any, **options: Any) -> Topics:
    """Ask this client, whatever becomes of it."""
    return Topics(RenewableClient(lambda _: admin), timeout_s=1, create=False, **options)


def ensure(admin: FakeAdmin, missing_s: float, *, create: bool = False, stopped: bool = False) -> None:
    topics = topics_of(admin, give_up=lambda: stopped, missing_s=missing_s)
    topics.ensure_progress("progress", 2, -1, create=create)


def test_a_progress_topic_that_is_unknown_for_a_moment_is_not_lost() -> None:
    ensure(FakeAdmin(2), missing_s=60.0)


def test_a_progress_topic_that_stays_unknown_is_lost() -> None:
    with pytest.raises(StoppedError, match="kafka_lost"):
        ensure(FakeAdmin(1_000), missing_s=0.0)


@pytest.mark.parametrize("controller", [None, KafkaError.POLICY_VIOLATION])
def test_a_progress_topic_that_the_controller_does_not_have_is_lost_at_once(controller: int | None) -> None:
    with pytest.raises(StoppedError, match="kafka_lost"):
        ensure(FakeAdmin(1_000, controller), missing_s=1_000.0)


def test_a_progress_topic_that_the_controller_knows_is_not_lost_however_long_a_broker_lags() -> None:
    admin = FakeAdmin(1_000, KafkaError.TOPIC_ALREADY_EXISTS)
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC_OR_PART"):
        ensure(admin, missing_s=0.0)
    assert admin.created == []


def test_the_progress_topic_has_three_replicas_where_the_settings_do_not_say() -> None:
    admin = FakeAdmin(1)
    ensure(admin, missing_s=60.0, create=True)
    assert [(topic.topic, topic.replication_factor) for topic in admin.created] == [("progress", 3)]


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.INVALID_REPLICATION_FACTOR,
        KafkaError.POLICY_VIOLATION,
        KafkaError.INVALID_CONFIG,
        KafkaError.INVALID_REQUEST,
    ],
)
def test_a_progress_topic_that_kafka_refuses_to_make_names_its_setting_until_it_is_there(code: int) -> None:
    admin = FakeAdmin(1)
    admin.refuses = KafkaError(code, "4 brokers are registered")
    topics = topics_of(admin)
    with pytest.raises(StoppedError) as raised:
        topics.ensure_progress("progress", 2, 5, create=True)
    assert raised.value.reason is StopReason.PROGRESS_REFUSED
    assert raised.value.retry
    for named in (
        "[publisher] progress_replication",
        "5 replicas",
        "cleanup.policy=compact",
        "4 brokers are registered",
    ):
        assert named in str(raised.value)
    topics.ensure_progress("progress", 2, 5, create=True)  # a person has made it


def test_a_kafka_that_cannot_make_the_progress_topic_for_a_moment_is_asked_again() -> None:
    admin = FakeAdmin(1)
    admin.refuses = KafkaError(KafkaError.COORDINATOR_NOT_AVAILABLE)
    with pytest.raises(KafkaException):
        topics_of(admin).ensure_progress("progress", 2, 5, create=True)


def test_a_progress_topic_of_our_own_that_was_made_again_has_no_old_end() -> None:
    """Kafka lost it, and a resume has made another one."""
    admin = FakeAdmin(1)
    topics = topics_of(admin, missing_s=60.0)
    topics.ensure_progress("progress", 2, -1, create=True)
    topics.written.take({("progress", 0): 100})
    admin.topic_id = "another"
    topics.ensure_progress("progress", 2, -1, create=False)
    topics.written.check("progress", {0: 2})


def test_asking_which_cluster_it_is_asks_for_the_metadata_of_one_topic() -> None:
    admin = FakeAdmin(0)
    assert topics_of(admin).cluster_id() == "cluster"
    assert None not in admin.asked_about


def test_a_stop_while_it_is_unknown_is_not_taken_for_a_loss() -> None:
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC_OR_PART"):
        ensure(FakeAdmin(1_000), missing_s=60.0, stopped=True)


def test_a_topic_that_a_lagging_broker_does_not_know_has_its_partitions() -> None:
    assert topics_of(FakeAdmin(2)).partitions("progress") == 2


def test_a_topic_that_was_missing_is_not_waited_for_again() -> None:
    admin = FakeAdmin(1_000)
    topics = topics_of(admin, missing_s=0.0)
    assert topics.is_missing("progress")
    asked = admin.asked
    assert topics.is_missing("progress")
    assert admin.asked == asked


class HangingAdmin:
    """A Kafka that answers nothing until it is told how to."""

    def poll(self, _timeout: float, /) -> None:
        """Nothing to tell."""

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.asked: list[tuple[str, Future[Any]]] = []

    def describe_topics(self, topics: Any, **_: Any) -> dict[str, "Future[Any]"]:
        names = [str(name) for name in topics.topic_names]
        with self._lock:
            self.asked += [(name, Future[Any]()) for name in names]
            return dict(self.asked[-len(names) :])

    def describe_configs(self, resources: list[Any], **_: Any) -> dict[Any, "Future[Any]"]:
        answer: Future[Any] = Future()
        values = {"min.insync.replicas": "1", "max.message.bytes": "1000", "cleanup.policy": "compact"}
        answer.set_result({name: SimpleNamespace(value=value) for name, value in values.items()})
        return {resources[0]: answer}

    def answer(self, which: int, topic_id: str) -> None:
        found = SimpleNamespace(topic_id=topic_id, partitions=[SimpleNamespace(replicas=[1])])
        self.asked[which][1].set_result(found)


class Waiting:
    """Asked by whoever waits for an answer: knows how many threads do."""

    def __init__(self) -> None:
        self.threads: set[int] = set()
        self.changed = threading.Condition()
        self.is_over = False

    def __call__(self) -> bool:
        with self.changed:
            self.threads.add(threading.get_ident())
            self.changed.notify_all()
        return self.is_over

    def are(self, count: int) -> bool:
        with self.changed:
            return self.changed.wait_for(lambda: len(self.threads) >= count, DEADLINE_S)


@contextmanager
def hanging() -> Iterator[tuple[HangingAdmin, Topics, Waiting, ThreadPoolExecutor]]:
    admin, waiting = HangingAdmin(), Waiting()
    topics = topics_of(admin, give_up=waiting)
    with ThreadPoolExecutor(LANES) as lanes:
        try:
            yield admin, topics, waiting, lanes
        finally:
            waiting.is_over = True


@pytest.mark.guarantee(131)
@pytest.mark.parametrize(
    ("ask", "requests"),
    [
        (lambda topics, _lane: topics.describe(["events"]), 1),
        (lambda topics, lane: topics.describe([f"events-{lane}"]), LANES),
        (lambda topics, _lane: topics.ensure_progress("progress", 2, 1, create=False), 1),
    ],
    ids=["the same topic", "a topic each", "the progress topic"],
)
def test_lanes_wait_for_a_kafka_that_hangs_at_the_same_time(
    ask: Callable[[Topics, int], object], requests: int
) -> None:
    with hanging() as (admin, topics, waiting, lanes):
        waits = [lanes.submit(ask, topics, lane) for lane in range(LANES)]
        together = waiting.are(LANES)
        asked = len(admin.asked)
        assert together
        assert asked == requests
        for _, answer in admin.asked:
            answer.set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
        for wait in waits:
            with pytest.raises(KafkaException, match="_TIMED_OUT"):
                wait.result(DEADLINE_S)


def test_an_answer_to_a_question_from_before_is_not_taken_for_one_of_now() -> None:
    with hanging() as (admin, topics, waiting, lanes):
        before = lanes.submit(topics.describe, ["events"])
        assert waiting.are(1)
        topics.forget(["events"])
        after = lanes.submit(topics.describe, ["events"])
        assert waiting.are(2)
        admin.answer(1, "new")
        assert after.result(DEADLINE_S)["events"].topic_id == "new"
        admin.answer(0, "old")
        assert before.result(DEADLINE_S)["events"].topic_id == "old"
        # The newer answer stays, though it came first.
        assert topics.describe(["events"])["events"].topic_id == "new"


class Rows:
    """The rows of a lane, which asks about their topics."""


def test_an_answer_that_failed_holds_nothing_of_who_asked() -> None:
    """The frames of a failure hold the rows, and the answer holds the failure: nobody looks for such a circle in a publisher."""
    topics = topics_of(FakeAdmin(1_000, None))
    rows: list[weakref.ref[Rows]] = []

    def ask(question: Callable[[], object]) -> None:
        chunk = Rows()
        rows.append(weakref.ref(chunk))
        question()

    gc.disable()
    try:
        for question in (
            lambda: topics.describe(["progress"]),
            lambda: topics.partitions("progress"),
            lambda: topics.is_missing("progress"),
            lambda: topics.ids(["progress"]),
        ):
            for _ in range(200):
                with suppress(StoppedError):
                    ask(question)
            assert [each for each in rows if each() is not None] == []
    finally:
        gc.enable()
