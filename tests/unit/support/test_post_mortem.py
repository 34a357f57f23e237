"""A test that fails because a service did not do something says where every thread of the service was."""

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
