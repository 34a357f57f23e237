"""What is said where Kafka Connect cannot be started."""

from pathlib import Path

import pytest

from benchmarks.peers.debezium.connect import ConnectWorker
from benchmarks.peers.debezium.settings import Choice
from devstack.processes.errors import DevstackError


def test_without_a_java_it_says_so_and_where_to_read_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    worker = ConnectWorker("127.0.0.1:1", tmp_path, "name", Choice())
    with pytest.raises(DevstackError, match=r"Debezium cannot be measured: JAVA_HOME is .*README\.md"):
        worker.start()
    worker.end()
