"""What an attempt held is gone once it has failed, whatever failed: a job survives an outage of weeks."""

import subprocess
import sys
import tempfile
from collections.abc import Callable

import pytest

from devstack.kafka import KafkaServer
from tests.support.held.figures import grown, measurements
from tests.support.processes.environment import without_settings

WARM, MORE = 4, 16


@pytest.mark.guarantee(35)
@pytest.mark.timeout(900)
def test_failed_attempts_leave_no_thread_descriptor_object_or_file(
    new_database: Callable[[], str], kafka: KafkaServer, topic_prefix: str
) -> None:
    # Its path is short enough for sockets.
    with tempfile.TemporaryDirectory(prefix="outbox-") as folder:
        where = [new_database(), new_database(), kafka.bootstrap_servers, folder, "--prefix", topic_prefix]
        numbers = ["--warm", str(WARM), "--every", str(MORE), "--attempts", str(WARM + MORE)]
        done = subprocess.run(
            [sys.executable, "-m", "tests.support.held.job", *where, *numbers],
            capture_output=True,
            text=True,
            timeout=800,
            env=without_settings(),
        )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    before, after = measurements(done.stdout).values()
    assert not grown(before, after), f"{before}\n{after}"
