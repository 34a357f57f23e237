"""Long-lived clients of librdkafka, made again when they fail: none is trusted to heal itself.

One that was given metadata without brokers may never connect again (librdkafka issue 5301), and one whose credentials were refused offers
the same ones for ever. So a client that has failed for LASTS_S, or was refused, is dropped, and the next request makes another one, out of
the secrets and certificates as they are then. Requests that still wait for the former one fail by themselves.

Lane producers are not among them: each takeover makes a new one (publisher/delivery/sender.py, `fence`).
"""

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYetError
from typing import Any, Generic, Protocol, TypeVar

import structlog
from confluent_kafka import KafkaError, KafkaException

from service.lifecycle.tracebacks import without_traceback

_log = structlog.get_logger()

LASTS_S = 10.0
"""Seconds that a client may fail before another one is made."""
_LOOK_S = 0.2
_NEVER_S = 3_600.0
"""The longest timeout that librdkafka takes. A client that is asked with it is dropped long before."""
# librdkafka numbers its own errors below this, brokers' are above.
_OWN_ERRORS = -100
# As librdkafka describes a connection that broke before anything went over it; later it is "in state UP".
_NEVER_MADE = "in state CONNECT"
# As confluent-kafka tells librdkafka that `[kafka] login` gave no token: nobody was asked, so nobody refused.
_NO_TOKEN = "OAuth callback raised exception"
# As librdkafka describes a connection that a broker ends because it logs in again too late or too early: nobody looked at its credentials.
_OUT_OF_TURN = "Request not valid in current SASL state"


class _Client(Protocol):
    def poll(self, timeout: float, /) -> Any: ...

    def __exit__(self, kind: Any, error: Any, trace: Any, /) -> Any: ...


C = TypeVar("C", bound=_Client)
K = TypeVar("K")
T = TypeVar("T")


class Complaints:
    """librdkafka's errors of its connections (`error_cb`): a request that waits for one only times out, without a reason.

    Nothing may be raised out of a callback: confluent-kafka 2.16 never frees such an exception, nor the clients that its frames lead to.
    """

    def __init__(self) -> None:
        self.refusal: KafkaError | None = None
        """Why the credentials or the TLS connection were refused, None where they were not."""
        self._unreachable: KafkaError | None = None

    def __call__(self, error: KafkaError) -> None:
        if error.str().endswith(_NO_TOKEN):
            text = "[kafka] login gave no new token: login_failed in the log has the reason"
            self._unreachable = KafkaError(KafkaError._TRANSPORT, text)
        elif _OUT_OF_TURN in error.str():
            self._unreachable = KafkaError(KafkaError._TRANSPORT, error.str())
        elif error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):
            self.refusal = error
        elif error.code() in (KafkaError._RESOLVE, KafkaError._TRANSPORT):
            self._unreachable = error

    def login_refused(self) -> KafkaError | None:
        """Return why the credentials were refused, which no waiting changes; None where they were not."""
        refusal = self.refusal
        return refusal if refusal is not None and refusal.code() == KafkaError._AUTHENTICATION else None

    @property
    def cannot_connect(self) -> bool:
        """Whether the newest connection that failed was never made, so that nothing was sent over it."""
        last = self._unreachable
        return last is not None and (last.code() == KafkaError._RESOLVE or _NEVER_MADE in last.str())

    def forget(self) -> None:
        """Start over."""
        self.refusal = self._unreachable = None

    def explain(self, error: KafkaException) -> KafkaException:
        """Return why a request failed, where librdkafka only gave up waiting."""
        told = error.args[0]
        if not is_own(told):
            return error
        if self.refusal is not None:
            return KafkaException(self.refusal)
        if self._unreachable is None or told.code() != KafkaError._TIMED_OUT:
            return error
        # With its own code: which broker cannot be reached, and by which name it called itself.
        return KafkaException(KafkaError(told.code(), f"{told.str()}: {self._unreachable.str()}"))


class _Held(Generic[C]):
    """A client and how it is doing. `replaces`: why the one before was dropped, None once this one has answered."""

    def __init__(self, make: Callable[[Complaints], C], replaces: str | None) -> None:
        self.complaints = Complaints()
        self.client = make(self.complaints)
        self.replaces = replaces
        self.failing_since: float | None = None

    def refused(self) -> bool:
        """Whether the credentials were refused: waiting for an answer is of no use."""
        self.client.poll(0)  # serves the complaints
        return self.complaints.login_refused() is not None


class Answer(Generic[T]):
    """The result or error of a Future, without the frames of the code that raised it, which may hold the answer."""

    def __init__(self, value: T | None, error: BaseException | None) -> None:
        self._value = value
        self.error = error

    def result(self) -> T:
        """Return it, or raise the error."""
        if self.error is not None:
            raise without_traceback(self.error)
        value: Any = self._value
        return value  # type: ignore[no-any-return]  # None may be one


class RenewableClient(Generic[C]):
    """Holds one client at a time. Thread-safe."""

    def __init__(self, make: Callable[[Complaints], C], lasts_s: float = LASTS_S) -> None:
        """`make` returns a client that tells the complaints of its errors. The first one is made at once; raises what `make` does."""
        self._make = make
        self._lasts_s = lasts_s
        self._lock = threading.Lock()
        self._dropped: str | None = None
        self._held: _Held[C] | None = _Held(make, None)

    def ask(self, request: Callable[[C], T]) -> T:
        """Return the result of `request` with the client.

        Raises KafkaException, with the refusal itself where the credentials or the TLS connection were refused.
        """
        return self._ask(lambda held: request(held.client))

    def answers(
        self,
        request: "Callable[[C], Mapping[K, Future[T]]]",
        give_up: Callable[[], bool] = lambda: False,
        check: "Callable[[dict[K, Answer[T]]], None]" = lambda _: None,
    ) -> "dict[K, Answer[T]]":
        """Return the answers to an administrative request, each of which a broker gave. `check` raises KafkaException for one that is none.

        Raises KafkaException as `ask` where there is no answer, also when `give_up` returns true (_TIMED_OUT).
        """

        def wait(held: _Held[C]) -> "dict[K, Answer[T]]":
            asked = request(held.client)
            answers = {
                each: _wait(future, lambda: give_up() or held.refused()) for each, future in asked.items()
            }
            for each in answers.values():
                if isinstance(each.error, KafkaException) and is_own(each.error.args[0]):
                    each.result()
            check(answers)
            return answers

        return self._ask(wait)

    def answers_within(
        self,
        timeout_s: float,
        request: "Callable[[C, float], Mapping[K, Future[T]]]",
        give_up: Callable[[], bool] = lambda: False,
        check: "Callable[[dict[K, Answer[T]]], None]" = lambda _: None,
    ) -> "dict[K, Answer[T]]":
        """As `answers`, for a request that may be sent twice. `request` is given the seconds that it may wait.

        A request that librdkafka hands to a connection just as its broker dies stays there until its timeout, so none waits for longer than
        a client lasts: the next one may be asked by another client.
        """

        def ask(wait_s: float) -> "dict[K, Answer[T]]":
            return self.answers(lambda client: request(client, wait_s), give_up, check)

        return self._ask_again(timeout_s, ask, give_up)

    def coordinator_answers(
        self,
        timeout_s: float,
        request: "Callable[[C, float], Mapping[K, Future[T]]]",
        give_up: Callable[[], bool] = lambda: False,
    ) -> "dict[K, Answer[T]]":
        """As `answers_within`, for what the coordinator of a group is asked: consumer groups' offsets.

        librdkafka ends the process if such a request of its reaches its timeout and the coordinator answers later: it frees the request
        twice (librdkafka issues 4605 and 3663, pull request 5397, open). So `request` is given a timeout that is never reached: the wait
        ends here, and the client that still waits is dropped.
        """

        def ask(wait_s: float) -> "dict[K, Answer[T]]":
            asked: list[C] = []
            ends = time.monotonic() + wait_s

            def begin(client: C) -> "Mapping[K, Future[T]]":
                asked.append(client)
                return request(client, _NEVER_S)

            try:
                return self.answers(begin, lambda: give_up() or time.monotonic() >= ends)
            except KafkaException as error:
                for client in asked:
                    self._drop(client, error.args[0])
                raise

        return self._ask_again(timeout_s, ask, give_up)

    def close(self) -> None:
        """End the client, with its threads. Another request would make another one."""
        with self._lock:
            held, self._held = self._held, None
        if held is not None:
            held.client.__exit__(None, None, None)

    def _ask_again(
        self, timeout_s: float, ask: "Callable[[float], dict[K, Answer[T]]]", give_up: Callable[[], bool]
    ) -> "dict[K, Answer[T]]":
        """Call `ask` with the seconds that it may wait, at most as long as a client lasts, until it has waited for `timeout_s` in all."""
        left_s = timeout_s
        while True:
            wait_s = min(left_s, self._lasts_s)
            began = time.monotonic()
            try:
                return ask(wait_s)
            except KafkaException as error:
                waited_s = time.monotonic() - began
                left_s -= waited_s
                has_waited = error.args[0].code() == KafkaError._TIMED_OUT and waited_s >= wait_s
                if not has_waited or left_s <= 0 or give_up():
                    raise

    def _ask(self, request: Callable[[_Held[C]], T]) -> T:
        held, began = self._hold(), time.monotonic()
        try:
            found = request(held)
        except KafkaException as error:
            held.refused()
            told: KafkaError = held.complaints.explain(error).args[0]
            self._note(held, told, began)
            if told is error.args[0]:
                raise
            # No variable holds it: its traceback leads here, and the two would keep the dropped client.
            raise KafkaException(told) from error
        self._note(held, None, began)
        return found

    def _hold(self) -> _Held[C]:
        with self._lock:
            if self._held is None:
                self._held = _Held(self._make, self._dropped)
            return self._held

    def _drop(self, client: C, error: KafkaError) -> None:
        with self._lock:
            if self._held is not None and self._held.client is client:
                self._held, self._dropped = None, error.str()

    def _note(self, held: _Held[C], error: KafkaError | None, began: float) -> None:
        if error is None or not is_own(error):
            held.failing_since = None
            held.complaints.forget()
            if held.replaces is not None:
                _log.info("kafka_client_renewed", reason=held.replaces)
                held.replaces = None
            return
        held.failing_since = min(began, held.failing_since or began)
        lasts = time.monotonic() - held.failing_since >= self._lasts_s
        if lasts or held.complaints.refusal is not None:
            self._drop(held.client, error)


def answer(future: "Future[T]", give_up: Callable[[], bool]) -> T:
    """Wait for an answer. Raises what it holds; KafkaException, _TIMED_OUT, when `give_up` returns true."""
    return _wait(future, give_up).result()


def is_own(error: KafkaError) -> bool:
    """Whether it is an error of librdkafka's own, or of a broker that cannot answer: another client may succeed."""
    return error.code() < _OWN_ERRORS or error.code() in (
        KafkaError.NOT_CONTROLLER,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.SASL_AUTHENTICATION_FAILED,
    )


def _wait(future: "Future[T]", give_up: Callable[[], bool]) -> Answer[T]:
    while True:
        try:
            error = future.exception(timeout=_LOOK_S)
        except NotYetError:
            if give_up():
                text = "gave up waiting for Kafka"
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, text)) from None
        else:
            return Answer(None, error) if error is not None else Answer(future.result(), None)
