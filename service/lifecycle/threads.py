"""Threads that live as long as their process does: one that fails is begun again, and the reason is in the log.

Other threads report to the thread that waits for them: a lane's worker and the publisher's heartbeat to the main thread, which raises what
ended them; the start of Spark and a commit to the thread that asks for their result. tests/unit/service/lifecycle/test_threads.py lists all
of them.
"""

import threading
import time
from collections.abc import Callable

import structlog

_log = structlog.get_logger()

_LEAST_PAUSE_S, _MOST_PAUSE_S = 0.1, 30.0


def supervised(run: Callable[[], None], name: str, ended: threading.Event) -> threading.Thread:
    """Return a thread, not started, that calls `run` until it returns, and again after a growing pause where it raises.

    `ended` ends the pause, and with it the thread; `run` checks it itself.
    """

    def supervise() -> None:
        pause_s = _LEAST_PAUSE_S
        while True:
            began = time.monotonic()
            try:
                run()
                return
            except Exception as error:  # noqa: BLE001 - whatever it is, nobody else would begin the thread again
                _log.error("thread_failed", thread=name, exc_info=error)
            if time.monotonic() - began > _MOST_PAUSE_S:
                pause_s = _LEAST_PAUSE_S
            if ended.wait(pause_s):
                return
            pause_s = min(2 * pause_s, _MOST_PAUSE_S)

    return threading.Thread(target=supervise, name=name, daemon=True)
