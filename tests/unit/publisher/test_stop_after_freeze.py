"""A process that was frozen and continued still ends when it is asked to."""

import signal
import subprocess
import sys
import time

import psutil

_PROGRAM = """
import threading
from publisher.shutdown import stop_on_signals
stop = threading.Event()
with stop_on_signals(stop):
    print("ready", flush=True)
    stop.wait()
"""


def test_sigterm_ends_a_process_that_was_stopped_and_continued() -> None:
    with subprocess.Popen([sys.executable, "-c", _PROGRAM], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        for _ in range(3):
            process.send_signal(signal.SIGSTOP)
            while psutil.Process(process.pid).status() != psutil.STATUS_STOPPED:
                time.sleep(0.01)
            time.sleep(0.4)  # longer than its wait for a signal
            process.send_signal(signal.SIGCONT)
        process.send_signal(signal.SIGTERM)
        try:
            assert process.wait(60) == 0
        finally:
            process.kill()
