"""Removing the job's cache removes nothing else, whatever others put where it was."""

import os
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from publisher.erasure.cache import remove_cache

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
    folder.mkdir(parents=True)
    for name in ("a.segment", "b.events"):
        (folder / name).touch()
    return folder


def test_the_files_of_the_outbox_go_and_those_behind_links_stay(partition: Path, theirs: Path) -> None:
    (partition / "link").symlink_to(theirs)
    (partition.parent / "topic-1").symlink_to(theirs.parent)
    assert remove_cache(str(partition.parents[1]), OUTBOX) == 3
    assert theirs.exists()
    assert remove_cache(str(partition.parents[1]), uuid4()) == 0


def test_a_link_that_takes_the_place_of_the_outbox_is_not_followed(partition: Path, theirs: Path) -> None:
    (theirs.parent / "topic-0").mkdir()
    (theirs.parent / "topic-0" / "file").touch()
    other = uuid4()
    (partition.parents[1] / str(other)).symlink_to(theirs.parent)
    assert remove_cache(str(partition.parents[1]), other) == 0
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
        remove_cache(str(partition.parents[1]), OUTBOX)
    assert theirs.exists()
