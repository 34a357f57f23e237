"""A client that fails for long, or is refused, is made again: with the secrets of that moment, for all who share it."""

import gc
import threading
import time
import weakref
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from publisher.kafka.topics import Topics
from service.kafka import renewable_client
from service.kafka.client import admin_client, no_answer
from service.kafka.renewable_client import Complaints, RenewableClient
from service.settings import KafkaSettings
from tests.support.servers.nameless_broker import NamelessBroker
from tests.support.waiting import wait_until

CLIENTS = 12
TIMED_OUT = KafkaException(KafkaError(KafkaError._TIMED_OUT))
REFUSED = KafkaError(KafkaError._AUTHENTICATION, "wrong password")


class FakeClient:
    """Answers what it is told to; `complain` at the next poll."""

    def __init__(self, complaints: Complaints) -> None:
        self._complaints = complaints
        self.complain: KafkaError | None = None
        self.is_closed = False

    def __exit__(self, *_: object) -> None:
        self.is_closed = True

    def poll(self, _timeout: float, /) -> None:
        if self.complain is not None:
            self._complaints(self.complain)


class Clients:
    """Makes clients and remembers them."""

    def __init__(self, lasts_s: float) -> None:
        self.made: list[FakeClient] = []
        self.held = RenewableClient(self._make, lasts_s)

    def _make(self, complaints: Complaints) -> FakeClient:
        self.made.append(FakeClient(complaints))
        return self.made[-1]

    def fails(self, error: KafkaException) -> KafkaException:
        def request(_client: FakeClient) -> None:
            raise error

        with pytest.raises(KafkaException) as raised:
            self.held.ask(request)
        return raised.value


def test_every_client_asks_again_after_a_broker_that_named_no_broker() -> None:
    broker = NamelessBroker()
    with broker.running():
        settings = KafkaSettings(bootstrap_servers=broker.bootstrap_servers)
        many = [Topics(admin_client(settings), timeout_s=1, create=False) for _ in range(CLIENTS)]
        wait_until(lambda: all(map(answers, many)), "all of them to know the cluster")
        broker.nameless = True

        def lose(topics: Topics) -> None:
            before = broker.nameless_answers
            wait_until(
                lambda: broker.nameless_answers > before or not answers(topics), "an answer without brokers"
            )
            wait_until(lambda: not answers(topics), "a failure")

        def find(topics: Topics) -> None:
            wait_until(lambda: answers(topics), "the cluster again", timeout_s=60)

        with ThreadPoolExecutor(CLIENTS) as threads:
            list(threads.map(lose, many))
            broker.nameless = False
            list(threads.map(find, many))


def answers(topics: Topics) -> bool:
    """Whether the cluster is known."""
    try:
        return topics.cluster_id() == "cluster"
    except KafkaException:
        return False


def test_a_client_that_fails_for_a_moment_is_kept() -> None:
    clients = Clients(lasts_s=60)
    clients.fails(TIMED_OUT)
    clients.fails(TIMED_OUT)
    assert len(clients.made) == 1


def test_a_client_that_has_failed_for_long_is_replaced() -> None:
    clients = Clients(lasts_s=0)
    clients.fails(TIMED_OUT)
    assert clients.held.ask(lambda client: client) is clients.made[1]


def test_a_client_to_which_no_leader_answers_is_replaced() -> None:
    """librdkafka answers such a question, with the offset -1001."""
    made = []

    def make(_complaints: Complaints) -> Any:
        def list_offsets(wanted: Any, **_: Any) -> Any:
            answer: Future[Any] = Future()
            answer.set_result(SimpleNamespace(offset=-1001))
            return dict.fromkeys(wanted, answer)

        made.append(
            SimpleNamespace(list_offsets=list_offsets, poll=lambda _s: None, __exit__=lambda *_: None)
        )
        return made[-1]

    topics = Topics(RenewableClient(make, lasts_s=0.2), timeout_s=1, create=False)

    def is_another_one() -> bool:
        with pytest.raises(KafkaException, match="does not answer"):
            topics.ends("events", [0])
        return len(made) > 1

    wait_until(is_another_one, "another client", timeout_s=5)


def test_what_a_broker_answers_is_no_failure_of_the_client() -> None:
    clients = Clients(lasts_s=0)
    clients.fails(KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)))
    assert clients.held.ask(lambda client: client) is clients.made[0]


def test_one_that_asks_a_former_controller_for_long_is_replaced() -> None:
    clients = Clients(lasts_s=0)
    clients.fails(KafkaException(KafkaError(KafkaError.NOT_CONTROLLER)))
    assert clients.held.ask(lambda client: client) is clients.made[1]


def test_an_answer_ends_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(renewable_client, "time", SimpleNamespace(monotonic=lambda: now[0]))
    clients = Clients(lasts_s=10)
    clients.fails(TIMED_OUT)
    now[0] += 9
    clients.held.ask(lambda _: None)
    now[0] += 9
    clients.fails(TIMED_OUT)
    assert clients.held.ask(lambda client: client) is clients.made[0]
    clients.fails(TIMED_OUT)
    now[0] += 9
    clients.fails(TIMED_OUT)
    now[0] += 9
    clients.fails(TIMED_OUT)
    assert clients.held.ask(lambda client: client) is clients.made[1]


@pytest.mark.parametrize("code", [KafkaError._AUTHENTICATION, KafkaError._SSL])
def test_a_refused_client_is_replaced_at_once_and_the_refusal_is_what_is_raised(code: int) -> None:
    clients = Clients(lasts_s=60)
    clients.made[0].complain = KafkaError(code, "wrong password or certificate")
    raised = clients.fails(TIMED_OUT)
    assert raised.args[0].code() == code
    assert clients.held.ask(lambda client: client) is clients.made[1]


def test_a_refused_client_is_freed_with_the_failure_that_dropped_it() -> None:
    """Without a cycle: its threads and its connections would live until Python looks for one."""
    made: list[weakref.ref[FakeClient]] = []

    def make(complaints: Complaints) -> FakeClient:
        client = FakeClient(complaints)
        client.complain = REFUSED
        made.append(weakref.ref(client))
        return client

    def request(_client: FakeClient) -> None:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    held = RenewableClient(make)
    gc.disable()
    try:
        for _ in range(3):
            with pytest.raises(KafkaException, match="wrong password"):
                held.ask(request)
        assert [client() for client in made] == [None] * 3
    finally:
        gc.enable()


def test_a_timeout_says_which_broker_cannot_be_reached() -> None:
    clients = Clients(lasts_s=60)
    said = "kafka-internal:9092/1: Failed to resolve 'kafka-internal:9092': Name or service not known"
    clients.made[0].complain = KafkaError(KafkaError._RESOLVE, said)
    error = clients.fails(TIMED_OUT).args[0]
    assert error.code() == KafkaError._TIMED_OUT
    assert said in error.str()
    settings = KafkaSettings(bootstrap_servers="10.0.0.1:9092")
    assert "calls its broker kafka-internal:9092, which cannot be reached from here" in no_answer(
        settings, error
    )
    assert "advertised.listeners" in no_answer(settings, error)
    same = KafkaError(
        KafkaError._TIMED_OUT, "Timed out: 10.0.0.1:9092/1: Connect to ipv4#10.0.0.1:9092 failed"
    )
    assert "does not answer" in no_answer(settings, same)


def test_nobody_waits_for_an_answer_once_the_credentials_are_refused() -> None:
    clients = Clients(lasts_s=60)
    clients.made[0].complain = REFUSED
    never: Future[None] = Future()
    with pytest.raises(KafkaException, match="wrong password"):
        clients.held.answers(lambda _: {"topic": never})


def test_a_closed_holder_has_closed_its_client() -> None:
    clients = Clients(lasts_s=60)
    clients.held.close()
    clients.held.close()
    assert [client.is_closed for client in clients.made] == [True]


def test_a_stop_ends_the_wait() -> None:
    clients = Clients(lasts_s=60)
    never: Future[None] = Future()
    with pytest.raises(KafkaException, match="gave up"):
        clients.held.answers(lambda _: {"topic": never}, lambda: True)


def test_a_request_that_a_dying_broker_has_taken_along_is_asked_again_by_another_client() -> None:
    clients = Clients(lasts_s=0.01)
    waited: list[float] = []

    def ask(client: FakeClient, wait_s: float) -> dict[str, Future[str]]:
        future: Future[str] = Future()
        waited.append(wait_s)
        if client is clients.made[0]:
            time.sleep(wait_s)
            future.set_exception(TIMED_OUT)
        else:
            future.set_result("here")
        return {"topic": future}

    assert clients.held.answers_within(60, ask)["topic"].result() == "here"
    assert waited == [0.01, 0.01]
    assert len(clients.made) == 2


def test_a_request_is_not_asked_again_before_it_has_waited_nor_after_its_time() -> None:
    clients = Clients(lasts_s=60)
    asked: list[float] = []

    def ask(_client: FakeClient, wait_s: float) -> dict[str, Future[str]]:
        future: Future[str] = Future()
        future.set_exception(TIMED_OUT)
        asked.append(wait_s)
        time.sleep(0.02)
        return {"topic": future}

    for timeout_s in (120, 0.01):
        with pytest.raises(KafkaException):
            clients.held.answers_within(timeout_s, ask)
    assert asked == [60, 0.01]


def test_an_answer_that_one_topic_is_missing_leaves_the_others_their_answers() -> None:
    clients = Clients(lasts_s=0)
    there: Future[int] = Future()
    there.set_result(1)
    missing: Future[int] = Future()
    missing.set_exception(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
    found = clients.held.answers(lambda _: {"there": there, "missing": missing})
    assert found["there"].result() == 1
    assert len(clients.made) == 1


def test_another_threads_answer_while_a_failure_is_noted_breaks_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clients = Clients(lasts_s=60)
    monotonic = time.monotonic

    def after_an_answer() -> float:
        monkeypatch.setattr(time, "monotonic", monotonic)
        clients.held.ask(lambda _client: None)
        return monotonic()

    def request(_client: FakeClient) -> None:
        monkeypatch.setattr(time, "monotonic", after_an_answer)
        raise TIMED_OUT

    with pytest.raises(KafkaException, match="_TIMED_OUT"):
        clients.held.ask(request)


class Forgetting(Complaints):
    """Has forgotten each error as soon as it was read, as after another thread's answer."""

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if value is not None and name in ("refusal", "_unreachable"):
            self.forget()
        return value


@pytest.mark.parametrize("code", [KafkaError._AUTHENTICATION, KafkaError._TRANSPORT])
def test_another_threads_answer_while_a_failure_is_explained_breaks_nothing(code: int) -> None:
    complaints = Forgetting()
    complaints(KafkaError(code, "why"))
    assert complaints.explain(TIMED_OUT).args[0].str().endswith("why")


def test_many_threads_that_fail_together_make_one_client() -> None:
    clients = Clients(lasts_s=0)
    together = threading.Barrier(8)

    def request(client: FakeClient) -> None:
        together.wait(30)
        if client is clients.made[0]:
            raise TIMED_OUT

    def ask(_: int) -> None:
        with pytest.raises(KafkaException):
            clients.held.ask(request)
        together.wait(30)
        clients.held.ask(lambda _: None)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(ask, range(8)))
    assert len(clients.made) == 2


def test_a_secret_is_read_anew_for_each_client(tmp_path: Path) -> None:
    secret = tmp_path / "secret.toml"
    secret.write_text('"sasl.password" = "former"\n')
    settings = KafkaSettings(secret_options_file=secret)
    seen: list[Any] = []

    def make(complaints: Complaints) -> FakeClient:
        seen.append(settings.client()["sasl.password"])
        return FakeClient(complaints)

    clients = RenewableClient(make, lasts_s=0)
    secret.write_text('"sasl.password" = "present"\n')

    def request(_client: FakeClient) -> None:
        raise TIMED_OUT

    with pytest.raises(KafkaException):
        clients.ask(request)
    clients.ask(lambda _: None)
    assert seen == ["former", "present"]


def test_a_connection_that_logs_in_again_too_late_is_broken_and_not_refused() -> None:
    """As librdkafka 2.16 says it of Kafka 4.2, on a busy machine with tokens of eight seconds."""
    said = (
        "SASL OAUTHBEARER mechanism handshake failed: Broker: Request not valid in current SASL state: "
        "broker's supported mechanisms:  (after 9ms in state AUTH_HANDSHAKE)"
    )
    clients = Clients(lasts_s=60)
    clients.made[0].complain = KafkaError(KafkaError._AUTHENTICATION, said)
    raised = clients.fails(TIMED_OUT)
    assert raised.args[0].code() == KafkaError._TIMED_OUT
    assert said in raised.args[0].str()
    assert clients.held.ask(lambda client: client) is clients.made[0]


def test_a_login_without_a_token_is_a_server_that_does_not_answer_and_no_refusal() -> None:
    complaints = Complaints()
    complaints(
        KafkaError(
            KafkaError._AUTHENTICATION,
            "Failed to acquire SASL OAUTHBEARER token: OAuth callback raised exception",
        )
    )
    assert complaints.login_refused() is None
    late = KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer"))
    assert "login_failed in the log" in str(complaints.explain(late))
