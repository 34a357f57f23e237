"""SIGTERM and SIGINT: the first asks for an orderly end, the second forces it."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

_SIGNALS = {signal.SIGTERM, signal.SIGINT}
_log = structlog.get_logger()


@contextmanager
def stop_on_signals(stop: threading.Event) -> Iterator[None]:
    """Set `stop` at the first signal, end the process with 128 + signal at the second. Main thread only.

    A thread waits for the signals instead of a handler, because a handler may run while its own thread holds the very
    lock that setting an event needs.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    done = threading.Event()

    def wait() -> None:
        while not done.is_set():
            received = signal.sigtimedwait(_SIGNALS, 0.2)
            if received is None:
                continue
            if stop.is_set():
                os._exit(128 + received.si_signo)
            _log.info("stopping", signal=signal.Signals(received.si_signo).name)
            stop.set()

    watcher = threading.Thread(target=wait, name="signals", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
