"""What a worker remembers of files: as they are, no more of them than there are, and never one that was changed meanwhile."""

import os
from pathlib import Path

import pytest

from spark_job.assembly.known_files import KnownFiles


def test_what_a_process_knows_is_bounded_and_the_least_recently_used_file_is_read_again(
    tmp_path: Path,
) -> None:
    known, reads = KnownFiles(most=2), list[str]()
    paths = [tmp_path / name for name in "abc"]
    for path in paths:
        path.write_bytes(b"1")

    def read(path: Path) -> str:
        def reading() -> str:
            reads.append(path.name)
            return path.read_text()

        return known.get_or_read(path, reading)

    assert [read(path) for path in (paths[0], paths[1], paths[0], paths[2], paths[0])] == ["1"] * 5
    assert reads == ["a", "b", "c"]
    assert read(paths[1]) == "1"
    assert reads == ["a", "b", "c", "b"], "it was used least recently"
    paths[0].write_bytes(b"22")
    assert read(paths[0]) == "22"
    paths[0].unlink()
    with pytest.raises(FileNotFoundError):
        read(paths[0])


def test_what_others_have_removed_or_replaced_is_let_go(tmp_path: Path) -> None:
    """Else the disk would not get the room back: a mapping keeps a file that has no name any more."""
    known, paths = KnownFiles(), [tmp_path / name for name in "abc"]
    for path in paths:
        path.write_bytes(b"1")
        known.get_or_read(path, path.read_bytes)
    paths[0].unlink()
    (tmp_path / "new").write_bytes(b"1")
    (tmp_path / "new").rename(paths[1])
    known.forget_removed()
    assert len(known) == 1
    assert known.get(paths[2]) == b"1"


def test_a_file_that_is_written_to_is_changed_and_one_that_is_replaced_is_as_it_was(tmp_path: Path) -> None:
    """Whoever has mapped a file keeps it as it was where another one takes its name."""
    known, path = KnownFiles(), tmp_path / "a"
    path.write_bytes(b"1")
    known.get_or_read(path, path.read_bytes)
    assert not known.is_changed(path)
    os.utime(path, (0, 0))
    assert known.is_changed(path)
    (tmp_path / "new").write_bytes(b"2")
    (tmp_path / "new").rename(path)
    assert not known.is_changed(path)
    path.unlink()
    assert not known.is_changed(path)
    assert not known.is_changed(tmp_path / "unknown")
