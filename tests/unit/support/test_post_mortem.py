"""A test that fails because a service did not do something says where every thread of the service was, and why it died."""

import sys
from pathlib import Path

from tests.support.processes.service import Service
from tests.support.waiting import wait_until

_PROGRAM = """
import threading

def hangs():
    threading.Event().wait()

threading.Thread(target=hangs, daemon=True).start()
print("hangs now", flush=True)
threading.Event().wait()
"""


_ASSERTS = """
import faulthandler, os, threading

for _ in range(100):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
faulthandler.enable()
print("Assertion failed", flush=True)
os.abort()
"""


def test_the_log_and_the_stacks_of_all_threads_of_a_stopped_process_are_in_its_post_mortem(
    tmp_path: Path,
) -> None:
    service = Service("hanging", {}, tmp_path / "log")
    service.launcher = (sys.executable, "-c", _PROGRAM)
    with service:
        wait_until(lambda: "hangs now" in service.log(), "its first line")
        service.pause()
        found = service.post_mortem()
        assert not service.is_alive()
    assert "hangs now" in found
    assert "in hangs" in found
    assert "in <module>" in found


def test_the_reason_of_a_death_is_shown_before_the_stacks_of_all_threads(tmp_path: Path) -> None:
    service = Service("asserting", {}, tmp_path / "log")
    service.launcher = (sys.executable, "-c", _ASSERTS)
    with service:
        wait_until(lambda: not service.is_alive(), "its end")
        assert "Assertion failed" in service.tail()
