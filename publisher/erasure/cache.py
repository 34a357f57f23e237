"""Removes the job's cache of open sessions on this machine. The job may lose all of it at any time (docs/architecture.md, Files)."""

import os
from contextlib import suppress
from pathlib import Path
from uuid import UUID

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


def cache_of(root: str, outbox_uuid: UUID) -> Path:
    """Return the absolute path of an outbox's cache below `[job] cache`, which may be relative to the working directory."""
    return (Path(root).expanduser() / str(outbox_uuid)).absolute()


def remove_cache(cache: Path) -> int | None:
    """Remove the cached files of an outbox; return how many there were, None if there is no such cache. A running job reads its open
    sessions again from Kafka. Raises OSError, also for a folder that another user owns or may write to: the job uses none either.

    Works with descriptors: even if somebody replaces one of these folders with a link, the link's target is not emptied.
    """
    removed = 0
    try:
        folder = _opened(cache, forbidden=0o022)
    except FileNotFoundError:
        return None
    try:
        for name in [each.name for each in os.scandir(folder) if each.is_dir(follow_symlinks=False)]:
            with suppress(FileNotFoundError):  # the job was faster
                removed += _empty(name, folder)
    finally:
        os.close(folder)
    return removed


def _empty(name: str, inside: int) -> int:
    removed = 0
    folder = _opened(name, forbidden=0o077, inside=inside)
    try:
        for each in os.listdir(folder):
            with suppress(FileNotFoundError):
                os.unlink(each, dir_fd=folder)
                removed += 1
    finally:
        os.close(folder)
    return removed


def _opened(path: Path | str, *, forbidden: int, inside: int | None = None) -> int:
    folder = os.open(path, _FOLDER, dir_fd=inside)
    found = os.fstat(folder)
    if found.st_uid != os.geteuid() or found.st_mode & forbidden:
        os.close(folder)
        raise PermissionError(f"{str(path)!r} must be a folder of this user alone (mode 0700)")
    return folder
