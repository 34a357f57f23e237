"""Servers of the tests keep their data in memory where there is enough, and leave nothing behind."""

import os
from pathlib import Path

import pytest

from tests.support.servers import memory
from tests.support.servers.memory import folder_in_memory


def test_the_folder_is_there_meanwhile_open_to_others_and_gone_afterwards(tmp_path: Path) -> None:
    with folder_in_memory(tmp_path / "disk", memory=tmp_path) as folder:
        assert folder.parent == tmp_path
        assert folder.stat().st_mode & 0o777 == 0o755
        (folder / "file").write_text("data")
    assert not folder.exists()


def test_what_a_killed_run_left_is_removed_and_what_another_one_uses_is_not(tmp_path: Path) -> None:
    left = tmp_path / "spark-outbox-tests-999999999-a"
    used = tmp_path / f"spark-outbox-tests-{os.getppid()}-b"
    left.mkdir()
    used.mkdir()
    with folder_in_memory(tmp_path / "disk", memory=tmp_path):
        assert not left.exists()
        assert used.exists()


def test_without_room_it_is_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_NEEDED_BYTES", 1 << 62)
    with folder_in_memory(tmp_path / "disk", memory=tmp_path) as folder:
        assert folder == tmp_path / "disk"
    with folder_in_memory(tmp_path / "disk", memory=tmp_path / "absent") as folder:
        assert folder == tmp_path / "disk"
