"""Sends one request for all threads that ask the same at the same time. The other threads wait for its answer, and share its failure."""

import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar

from service.kafka.renewable_client import answer
from service.lifecycle.tracebacks import without_traceback

T = TypeVar("T")


class _Flight(NamedTuple):
    begun_at: float
    answer: "Future[Any]"


class SingleFlight:
    """Thread-safe. Different questions do not wait for each other, because no lock is held during a request."""

    def __init__(self, give_up: Callable[[], bool]) -> None:
        """`give_up`: called while a thread waits for another thread's answer; true ends the wait."""
        self._give_up = give_up
        self._lock = threading.Lock()
        self._flights: dict[Hashable, _Flight] = {}

    def ask(self, question: Hashable, ask: Callable[[], T], *, newer_than: float = 0.0) -> T:
        """Return the result of `ask`, or of a running call of another thread that began at `newer_than` (time.monotonic) or later.

        Raises the exception of that call; KafkaException, _TIMED_OUT, if `give_up` returns true.
        """
        with self._lock:
            flight = self._flights.get(question)
            joins = flight is not None and flight.begun_at >= newer_than
            if flight is None or not joins:
                flight = self._flights[question] = _Flight(time.monotonic(), Future())
        if joins:
            found: T = answer(flight.answer, self._give_up)
            return found
        return self._fly(question, flight, ask)

    def _fly(self, question: Hashable, flight: _Flight, ask: Callable[[], T]) -> T:
        try:
            found = ask()
        except BaseException as error:
            flight.answer.set_exception(without_traceback(error))
            raise
        else:
            flight.answer.set_result(found)
            return found
        finally:
            with self._lock:
                if self._flights.get(question) is flight:
                    del self._flights[question]
