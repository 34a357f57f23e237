"""SIGTERM and SIGINT: the first asks for an orderly end, the second forces it."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from types import FrameType

import structlog

from service.lifecycle.threads import supervised

_SIGNALS = {signal.SIGTERM, signal.SIGINT}
_log = structlog.get_logger()

LONGEST_END_S = 30.0
"""An orderly end has its own bounds (relay.py); this bound is for an end that hangs unexpectedly."""


@contextmanager
def stop_on_signals(stop: threading.Event, longest_end_s: float = LONGEST_END_S) -> Iterator[None]:
    """Set `stop` at the first signal; exit with 128 + signal at the second, or `longest_end_s` later. Main thread only.

    A thread, not a handler, waits for the signals: a handler could interrupt its thread while that holds the event's lock.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    done = threading.Event()

    def wait() -> None:
        first: tuple[int, float] | None = None
        while not done.is_set():
            received = signal.sigtimedwait(_SIGNALS, 0.2)
            if first is not None and time.monotonic() - first[1] > longest_end_s:
                _log.warning("end_forced", waited_s=longest_end_s)
                os._exit(128 + first[0])
            # CPython returns an empty record, not None, if the process was stopped and continued (SIGSTOP) meanwhile.
            if received is None or received.si_signo not in _SIGNALS:
                continue
            # Even if `stop` was set without a signal, only the second signal forces the end.
            if first is not None:
                os._exit(128 + received.si_signo)
            first = received.si_signo, time.monotonic()
            stop.set()
            _log.info("stopping", signal=signal.Signals(received.si_signo).name)

    watcher = supervised(wait, "signals", done)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def stop_on_handled_signals(stop: threading.Event) -> Iterator[None]:
    """Set `stop` at the first signal; the second one ends the process. Main thread only. For a process that starts others, which would
    inherit blocked signals.

    The handler only puts into a queue, whose C code is reentrant. A thread sets the event, because that takes a lock.
    """
    received: SimpleQueue[int | None] = SimpleQueue()
    has_come = False

    def handle(number: int, _frame: FrameType | None) -> None:
        nonlocal has_come
        if has_come:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        has_come = True
        received.put(number)

    def wait() -> None:
        while received.get() is not None:
            stop.set()

    done = threading.Event()
    watcher = supervised(wait, "signals", done)
    watcher.start()
    before = {number: signal.signal(number, handle) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        done.set()
        received.put(None)
        watcher.join()
