"""Removing the job's cache removes nothing else, whatever others put where it was."""

import os
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from publisher.erasure.cache import cache_of, remove_cache

OUTBOX = uuid4()


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A file of somebody else."""
    file = tmp_path / "theirs" / "file"
    file.parent.mkdir()
    file.touch()
    return file


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """A folder of the cache with two files."""
    folder = tmp_path / "cache" / str(OUTBOX) / "topic-0"
    folder.mkdir(mode=0o700, parents=True)
    folder.parent.chmod(0o755)
    for name in ("a.segment", "b.events"):
        (folder / name).touch()
    return folder


def test_the_files_of_the_outbox_go_and_those_behind_links_stay(partition: Path, theirs: Path) -> None:
    (partition / "link").symlink_to(theirs)
    (partition.parent / "topic-1").symlink_to(theirs.parent)
    assert remove_cache(partition.parent) == 3
    assert theirs.exists()


def test_a_cache_that_is_elsewhere_is_told_from_an_empty_one(
    partition: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert remove_cache(partition.parent) == 2
    assert remove_cache(partition.parent) == 0
    monkeypatch.chdir(partition.parents[1])
    elsewhere = cache_of("./cache", OUTBOX)
    assert elsewhere == partition.parents[1] / "cache" / str(OUTBOX)
    assert remove_cache(elsewhere) is None


@pytest.mark.parametrize(("level", "mode"), [(0, 0o755), (0, 0o777), (1, 0o777), (1, 0o775)])
def test_a_folder_to_which_others_may_write_is_left_as_the_job_leaves_it(
    partition: Path, level: int, mode: int
) -> None:
    (partition, partition.parent)[level].chmod(mode)
    with pytest.raises(PermissionError, match="of this user alone"):
        remove_cache(partition.parent)
    assert (partition / "a.segment").exists()


def test_nor_is_a_folder_of_another_user_emptied(partition: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: partition.stat().st_uid + 1)
    with pytest.raises(PermissionError, match="of this user alone"):
        remove_cache(partition.parent)
    assert (partition / "a.segment").exists()


def test_a_link_that_takes_the_place_of_the_outbox_is_not_followed(partition: Path, theirs: Path) -> None:
    (theirs.parent / "topic-0").mkdir()
    (theirs.parent / "topic-0" / "file").touch()
    other = uuid4()
    (partition.parents[1] / str(other)).symlink_to(theirs.parent)
    with pytest.raises(NotADirectoryError):
        remove_cache(partition.parents[1] / str(other))
    assert (theirs.parent / "topic-0" / "file").exists()


def test_a_link_that_takes_a_folders_place_in_between_is_not_followed(
    partition: Path, theirs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scandir = os.scandir

    def swapping(folder: Any) -> list[os.DirEntry[str]]:
        found = list(scandir(folder))
        if partition.exists() and not partition.is_symlink():
            partition.rename(partition.with_name("topic-9"))
            partition.symlink_to(theirs.parent)
        return found

    monkeypatch.setattr(os, "scandir", swapping)
    with pytest.raises(NotADirectoryError):
        remove_cache(partition.parent)
    assert theirs.exists()
