"""Removes the job's cache of open sessions on this machine. The job may lose all of it at any time (docs/architecture.md, Files)."""

import os
from contextlib import suppress
from pathlib import Path
from uuid import UUID

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


def remove_cache(root: str, outbox_uuid: UUID) -> int:
    """Remove the cached files of an outbox; return how many there were. A running job reads its open sessions again from Kafka. Raises
    OSError.

    Works with descriptors: even if somebody replaces one of these folders with a link, the link's target is not emptied.
    """
    removed = 0
    try:
        folder = os.open(Path(root).expanduser() / str(outbox_uuid), _FOLDER)
    except (FileNotFoundError, NotADirectoryError):
        return 0
    try:
        for name in [each.name for each in os.scandir(folder) if each.is_dir(follow_symlinks=False)]:
            with suppress(FileNotFoundError):  # the job was faster
                removed += _empty(name, folder)
    finally:
        os.close(folder)
    return removed


def _empty(name: str, inside: int) -> int:
    removed = 0
    folder = os.open(name, _FOLDER, dir_fd=inside)
    try:
        for each in os.listdir(folder):
            with suppress(FileNotFoundError):
                os.unlink(each, dir_fd=folder)
                removed += 1
    finally:
        os.close(folder)
    return removed
