"""Threads that live as long as their process does: a thread that fails is started again, and the reason is logged.

Every other thread reports its error to the thread that waits for it. A lane's worker and the publisher's heartbeat report to the main
thread, which raises the error. Spark's start and a commit report to the thread that asks for the result.
tests/unit/service/lifecycle/test_threads.py lists all threads.
"""

import threading
import time
from collections.abc import Callable

import structlog

_log = structlog.get_logger()

_LEAST_PAUSE_S, _MOST_PAUSE_S = 0.1, 30.0


def supervised(run: Callable[[], None], name: str, ended: threading.Event) -> threading.Thread:
    """Return a thread, not started, that calls `run` until it returns; each time it raises, a longer pause precedes the next call.

    Setting `ended` ends the pause and the thread. `run` must check `ended` itself.
    """

    def supervise() -> None:
        pause_s = _LEAST_PAUSE_S
        while True:
            began = time.monotonic()
            try:
                run()
                return
            except Exception as error:  # noqa: BLE001 - nothing else would start the thread again
                _log.error("thread_failed", thread=name, exc_info=error)
            if time.monotonic() - began > _MOST_PAUSE_S:
                pause_s = _LEAST_PAUSE_S
            if ended.wait(pause_s):
                return
            pause_s = min(2 * pause_s, _MOST_PAUSE_S)

    return threading.Thread(target=supervise, name=name, daemon=True)
