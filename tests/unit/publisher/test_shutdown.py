"""A signal that asks for the end is heard whatever happened to the process before."""

import signal
import threading

import pytest

from publisher.shutdown import stop_on_signals


def siginfo(number: int) -> signal.struct_siginfo:
    return signal.struct_siginfo((number, 0, 0, 0, 0, 0, 0))


def test_a_wait_that_a_stop_and_a_wake_up_interrupted_is_no_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    # What CPython returned in a process that was stopped for longer than the wait was to last.
    answers = iter([siginfo(0), None, siginfo(signal.SIGTERM)])
    monkeypatch.setattr(signal, "sigtimedwait", lambda *_: next(answers, None))
    stop = threading.Event()
    with stop_on_signals(stop):
        assert stop.wait(90)
