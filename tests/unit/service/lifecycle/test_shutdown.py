"""A signal that asks for the end is heard whatever happened to the process before."""

import signal
import subprocess
import sys
import threading

import pytest

from service.lifecycle.shutdown import stop_on_handled_signals, stop_on_signals

DEADLINE_S = 90


def siginfo(number: int) -> signal.struct_siginfo:
    return signal.struct_siginfo((number, 0, 0, 0, 0, 0, 0))


def test_a_wait_that_a_stop_and_a_wake_up_interrupted_is_no_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    # What CPython returned in a process that was stopped for longer than the wait was to last.
    answers = iter([siginfo(0), None, siginfo(signal.SIGTERM)])
    monkeypatch.setattr(signal, "sigtimedwait", lambda *_: next(answers, None))
    stop = threading.Event()
    with stop_on_signals(stop):
        assert stop.wait(DEADLINE_S)


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
        assert ended.wait(DEADLINE_S)
    assert forced[0] == (3, 128 + signal.SIGTERM)


def test_a_handled_signal_never_waits_for_a_lock_that_its_own_thread_holds() -> None:
    """The job's main thread waits on the event, and so holds its lock ten times a second."""
    stop = threading.Event()
    with stop_on_handled_signals(stop):
        with stop._cond:  # type: ignore[attr-defined]
            signal.raise_signal(signal.SIGTERM)
        assert stop.wait(DEADLINE_S)


def test_the_second_handled_signal_ends_a_process_that_holds_the_lock_for_ever() -> None:
    hangs = (
        "import signal, threading\n"
        "from service.lifecycle.shutdown import stop_on_handled_signals\n"
        "stop = threading.Event()\n"
        "with stop_on_handled_signals(stop), stop._cond:\n"
        "    signal.raise_signal(signal.SIGINT)\n"
        "    signal.raise_signal(signal.SIGTERM)\n"
    )
    ended = subprocess.run([sys.executable, "-c", hangs], timeout=DEADLINE_S, check=False)
    assert ended.returncode == -signal.SIGTERM


def test_a_process_started_while_signals_are_handled_can_be_ended_by_them() -> None:
    """Spark's JVM is one."""
    shows = "import signal; print(signal.pthread_sigmask(signal.SIG_BLOCK, []))"
    before = signal.getsignal(signal.SIGTERM)
    with stop_on_handled_signals(threading.Event()):
        assert signal.getsignal(signal.SIGTERM) is not before
        started = subprocess.run(
            [sys.executable, "-c", shows], capture_output=True, text=True, timeout=DEADLINE_S, check=True
        )
    assert started.stdout.strip() == "set()"
    assert signal.getsignal(signal.SIGTERM) is before
