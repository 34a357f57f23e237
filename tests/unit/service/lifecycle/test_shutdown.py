"""A signal that asks for the end is heard whatever happened to the process before."""

import signal
import threading

import pytest

from service.lifecycle.shutdown import stop_on_signals


def siginfo(number: int) -> signal.struct_siginfo:
    return signal.struct_siginfo((number, 0, 0, 0, 0, 0, 0))


def test_a_wait_that_a_stop_and_a_wake_up_interrupted_is_no_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    # What CPython returned in a process that was stopped for longer than the wait was to last.
    answers = iter([siginfo(0), None, siginfo(signal.SIGTERM)])
    monkeypatch.setattr(signal, "sigtimedwait", lambda *_: next(answers, None))
    stop = threading.Event()
    with stop_on_signals(stop):
        assert stop.wait(90)


def test_the_first_signal_during_an_end_of_its_own_forces_nothing_and_the_second_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = iter([siginfo(signal.SIGTERM), None, siginfo(signal.SIGTERM)])
    asked: list[int] = []
    forced: list[tuple[int, int]] = []
    ended = threading.Event()

    def wait(*_: object) -> signal.struct_siginfo | None:
        asked.append(1)
        return next(answers, None)

    def force(code: int) -> None:
        forced.append((len(asked), code))
        ended.set()

    monkeypatch.setattr(signal, "sigtimedwait", wait)
    monkeypatch.setattr("os._exit", force)
    stop = threading.Event()
    stop.set()  # as `run` does when it ends by itself
    with stop_on_signals(stop):
        assert ended.wait(90)
    assert forced[0] == (3, 128 + signal.SIGTERM)
