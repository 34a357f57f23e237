"""What can happen to the folders in which the workers keep open sessions, one for each partition."""

import shutil
from collections.abc import Callable
from pathlib import Path

_EVENTS = "*.events"
_TABLES = "*.sessions"
_SEGMENTS = "*.segment"
_PARTITIONS = 3

Damage = Callable[[list[Path]], None]


def _deleted(folders: list[Path]) -> None:
    for folder in folders:
        shutil.rmtree(folder)


def _not_folders(folders: list[Path]) -> None:
    for folder in folders:
        shutil.rmtree(folder)
        folder.write_bytes(b"")


def _open_to_all(folders: list[Path]) -> None:
    """Nothing in a folder that others may write to is believed, and nothing is kept there."""
    for folder in folders:
        folder.chmod(0o777)


def _of_others(folders: list[Path]) -> None:
    """Sound files, but with what a neighbour, another run or another assembly had open."""
    contents = [next(folder.glob(_TABLES)).read_bytes() for folder in folders]
    for folder, content in zip(folders, contents[1:] + contents[:1], strict=True):
        for file in folder.glob(_TABLES):
            file.write_bytes(content)


def _changed(pattern: str, change: Callable[[bytes], bytes]) -> Damage:
    """Other content in place, as a disk does it."""

    def damage(folders: list[Path]) -> None:
        for folder in folders:
            for file in folder.glob(pattern):
                file.write_bytes(change(file.read_bytes()))

    return damage


def _half(content: bytes) -> bytes:
    return content[: len(content) // 2]


def _turned(content: bytes) -> bytes:
    """The second half is another one."""
    at = len(content) // 2
    return content[:at] + bytes(byte ^ 1 for byte in content[at:])


DELETED = "deleted"
OLD = "of an earlier run"
CACHE_DAMAGES: dict[str, Damage] = {
    DELETED: _deleted,
    "emptied": _changed(_TABLES, lambda _: b""),
    "without events": _changed(_EVENTS, lambda _: b""),
    "cut off": _changed(_TABLES, _half),
    "events cut off": _changed(_EVENTS, _half),
    "segments cut off": _changed(_SEGMENTS, _half),
    "garbled": _changed(_TABLES, _turned),
    "segments garbled": _changed(_SEGMENTS, _turned),
    "events garbled": _changed(_EVENTS, _turned),
    "of others": _of_others,
    "open to all": _open_to_all,
    "not a folder": _not_folders,
}


def damage(cache: Path, how: str) -> None:
    """Do it to all partitions of a pipeline's cache."""
    folders = sorted(cache.glob("*/*"))
    assert len(folders) == _PARTITIONS, folders
    CACHE_DAMAGES[how](folders)


def bring_back(cache: Path, copy: Path) -> None:
    """Replace the cache by one that was kept: of a machine that the job comes back to."""
    shutil.rmtree(cache, ignore_errors=True)
    shutil.copytree(copy, cache)
