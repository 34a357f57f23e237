"""The job's cache of open sessions on this machine. The job can lose it at any time, so all of it goes (docs/architecture.md, Files)."""

import os
from pathlib import Path
from uuid import UUID


def remove_cache(root: str, outbox_uuid: UUID) -> int:
    """Remove the files of an outbox; return how many there were. A running job finds its open sessions again in Kafka. Raises OSError."""
    folder = Path(root).expanduser() / str(outbox_uuid)
    if not folder.is_dir() or folder.is_symlink():
        return 0
    removed = 0
    for partition in os.scandir(folder):
        if not partition.is_dir(follow_symlinks=False):
            continue
        for entry in os.scandir(partition.path):
            try:
                os.unlink(entry.path)
            except FileNotFoundError:
                continue  # the job was faster
            removed += 1
    return removed
