"""Long-lived clients of librdkafka, replaced when they fail: none is trusted to recover by itself.

A client that got metadata without brokers may never connect again (librdkafka issue 5301), and a client whose credentials were refused
keeps offering them. So a client that has failed for LASTS_S, or was refused, is dropped, and the next request makes another one, with the
secrets and certificates of that moment. Requests that still wait for the dropped one fail by themselves.

Lane producers are not renewed: each takeover makes a new one (publisher/delivery/sender.py, `fence`).
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
"""The longest timeout that librdkafka accepts. A client with such a request is dropped long before."""
# librdkafka's own errors have lower codes, brokers' errors have higher ones.
_OWN_ERRORS = -100
# librdkafka's text for a connection that broke before anything was sent; later breaks are "in state UP".
_NEVER_MADE = "in state CONNECT"
# confluent-kafka's text for a `[kafka] login` that gave no token: no broker was asked, so none refused.
_NO_TOKEN = "OAuth callback raised exception"
# librdkafka's text for a connection that a broker ends because the client logged in again too late or too early, whatever its credentials.
_OUT_OF_TURN = "Request not valid in current SASL state"


class _Client(Protocol):
    def poll(self, timeout: float, /) -> Any: ...

    def __exit__(self, kind: Any, error: Any, trace: Any, /) -> Any: ...


C = TypeVar("C", bound=_Client)
K = TypeVar("K")
T = TypeVar("T")


class Complaints:
    """librdkafka's errors of its connections (`error_cb`): a request that waits for a connection only times out, without a reason.

    A callback must not raise: confluent-kafka 2.16 never frees the exception, nor the clients that its frames refer to.
    """

    def __init__(self) -> None:
        self.refusal: KafkaError | None = None
        """The refusal of the credentials or the TLS connection, None without one."""
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
        """Return the refusal of the credentials, after which waiting is useless; None without one."""
        refusal = self.refusal
        return refusal if refusal is not None and refusal.code() == KafkaError._AUTHENTICATION else None

    @property
    def cannot_connect(self) -> bool:
        """Whether the newest failed connection was never made, so that nothing was sent over it."""
        last = self._unreachable
        return last is not None and (last.code() == KafkaError._RESOLVE or _NEVER_MADE in last.str())

    def forget(self) -> None:
        """Start over."""
        self.refusal = self._unreachable = None

    def explain(self, error: KafkaException) -> KafkaException:
        """Return why a request failed if librdkafka only gave up waiting."""
        told = error.args[0]
        if not is_own(told):
            return error
        # Read once: another thread may `forget`.
        refusal, unreachable = self.refusal, self._unreachable
        if refusal is not None:
            return KafkaException(refusal)
        if unreachable is None or told.code() != KafkaError._TIMED_OUT:
            return error
        # Keep the code, and add which broker cannot be reached and the name that it advertises.
        return KafkaException(KafkaError(told.code(), f"{told.str()}: {unreachable.str()}"))


class _Held(Generic[C]):
    """A client and its state. `replaces`: why the previous client was dropped; None once this client has answered."""

    def __init__(self, make: Callable[[Complaints], C], replaces: str | None) -> None:
        self.complaints = Complaints()
        self.client = make(self.complaints)
        self.replaces = replaces
        self.failing_since: float | None = None

    def refused(self) -> bool:
        """Return whether the credentials were refused, so that waiting is useless."""
        self.client.poll(0)  # calls `complaints`
        return self.complaints.login_refused() is not None


class Answer(Generic[T]):
    """The result or error of a Future, without the frames of the raising code, which may hold the answer."""

    def __init__(self, value: T | None, error: BaseException | None) -> None:
        self._value = value
        self.error = error

    def result(self) -> T:
        """Return the result, or raise the error."""
        if self.error is not None:
            raise without_traceback(self.error)
        value: Any = self._value
        return value  # type: ignore[no-any-return]  # None may be one


class RenewableClient(Generic[C]):
    """Holds one client at a time. Thread-safe."""

    def __init__(self, make: Callable[[Complaints], C], lasts_s: float = LASTS_S) -> None:
        """`make` returns a client that reports its errors to the complaints. It is called here once, for the first client; its errors are
        raised.
        """
        self._make = make
        self._lasts_s = lasts_s
        self._lock = threading.Lock()
        self._dropped: str | None = None
        self._held: _Held[C] | None = _Held(make, None)

    def ask(self, request: Callable[[C], T]) -> T:
        """Return the result of `request` with the client.

        Raises KafkaException; with the refusal itself if the credentials or the TLS connection were refused.
        """
        return self._ask(lambda held: request(held.client))

    def answers(
        self,
        request: "Callable[[C], Mapping[K, Future[T]]]",
        give_up: Callable[[], bool] = lambda: False,
        check: "Callable[[dict[K, Answer[T]]], None]" = lambda _: None,
    ) -> "dict[K, Answer[T]]":
        """Return the brokers' answers to an administrative request. `check` raises KafkaException if one of them is not a broker's answer.

        Raises KafkaException, as `ask` does, if there is no answer; with _TIMED_OUT when `give_up` returns True.
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
        """Do as `answers`, for a request that may be sent twice. `request` gets the seconds that it may wait.

        A request that librdkafka hands to a connection just as its broker dies stays there until its timeout. So each request waits at
        most `lasts_s`, after which a failing client is dropped, and another client may send the next request.
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
        """Do as `answers_within`, for requests to a group's coordinator: consumer groups' offsets.

        librdkafka ends the process if such a request times out and the coordinator answers later: it frees the request twice (librdkafka
        issues 4605 and 3663, pull request 5397, open). So `request` gets a timeout that is never reached: the wait ends here, and the
        client that still waits is dropped.
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
        """End the client, with its threads. A later request would make another one."""
        with self._lock:
            held, self._held = self._held, None
        if held is not None:
            held.client.__exit__(None, None, None)

    def _ask_again(
        self, timeout_s: float, ask: "Callable[[float], dict[K, Answer[T]]]", give_up: Callable[[], bool]
    ) -> "dict[K, Answer[T]]":
        """Call `ask` with the seconds that it may wait, at most `_lasts_s`, until it has waited for `timeout_s` in all."""
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
            # No variable may hold this exception: its traceback refers to this frame, and the cycle would keep the dropped client alive.
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
            replaces, held.replaces = held.replaces, None
            if replaces is not None:
                _log.info("kafka_client_renewed", reason=replaces)
            return
        # An answer to another thread's request may reset the attribute.
        held.failing_since = since = min(began, held.failing_since or began)
        lasts = time.monotonic() - since >= self._lasts_s
        if lasts or held.complaints.refusal is not None:
            self._drop(held.client, error)


def answer(future: "Future[T]", give_up: Callable[[], bool]) -> T:
    """Wait for an answer. Raises its error; KafkaException, _TIMED_OUT, when `give_up` returns True."""
    return _wait(future, give_up).result()


def is_own(error: KafkaError) -> bool:
    """Return whether the error is librdkafka's own, or of a broker that cannot answer: another client may succeed."""
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
