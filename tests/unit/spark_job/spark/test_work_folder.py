"""The folder of a process goes with it: at its end, or with the next one's start where it was killed. A living one's stays."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest

from spark_job.spark import work_folder
from spark_job.spark.work_folder import WorkFolder

PROGRAM = """
import sys, tempfile
tempfile.tempdir = sys.argv[1]
from spark_job.spark.work_folder import WorkFolder
folder = WorkFolder()
print(folder.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@contextmanager
def other_process(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A process that uses a folder of its own until it is killed."""
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, Path(process.stdout.readline().strip())
        finally:
            process.kill()


def test_a_killed_processes_folder_is_removed_by_the_next_one_and_a_living_ones_is_not(
    tmp_path: Path,
) -> None:
    with other_process(tmp_path) as (killed, abandoned), other_process(tmp_path) as (_, living):
        (abandoned / "blockmgr").mkdir()
        first = WorkFolder()
        assert first.path.is_dir()
        assert abandoned.is_dir(), "it lives, too"
        killed.kill()
        killed.wait()
        second = WorkFolder()
        assert second.path.is_dir()
        assert not abandoned.exists()
        assert living.is_dir()
        assert first.path.is_dir()
        first.remove()
        second.remove()


def test_what_others_have_in_the_temporary_folder_is_left_alone(tmp_path: Path) -> None:
    strange = tmp_path / f"{work_folder.PREFIX}without-a-lock"
    strange.mkdir()
    (tmp_path / "mine").mkdir()
    folder = WorkFolder()
    assert folder.path.is_dir()
    assert strange.is_dir()
    assert (tmp_path / "mine").is_dir()
    folder.remove()


def test_a_folder_of_another_user_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lock may be a pipe, which would be waited for."""
    strange = tmp_path / f"{work_folder.PREFIX}planted"
    strange.mkdir()
    os.mkfifo(strange / "in-use")
    uid = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    folder = WorkFolder()
    assert folder.path.is_dir()
    assert strange.is_dir()
    folder.remove()


def test_it_goes_with_its_process_and_the_next_use_makes_another(tmp_path: Path) -> None:
    folder = WorkFolder()
    first = folder.path
    assert first == folder.path
    assert first.stat().st_mode & 0o777 == 0o700
    folder.remove()
    assert list(tmp_path.iterdir()) == []
    assert folder.path != first
    folder.remove()
    folder.remove()


def test_each_query_has_an_empty_checkpoint_that_is_thrown_away(tmp_path: Path) -> None:
    folder = WorkFolder()
    seen = []
    for _ in range(2):
        with folder.checkpoint() as uri:
            place = urlparse(uri)
            assert place.scheme == "file"
            path = Path(unquote(place.path))
            assert list(path.iterdir()) == []
            (path / "offsets").mkdir()
            seen.append(path)
        assert not path.exists()
    assert len(set(seen)) == 2
    folder.remove()
