"""Reads and writes the files of one outbox's archive in a folder.

Only this module reads and writes files in that folder. Below the root no link is followed. Written files are durable.
"""

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO
from uuid import UUID

from publisher.archive.files import (
    OWNER,
    ArchiveDamagedError,
    FileMissingError,
    is_listed,
    require_readable,
    require_writable,
)
from service.errors import SettingsError

_FOLDER = re.compile(r"day=\d{4}-\d{2}-\d{2}|_manifests|_writing", re.ASCII)
_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class ArchiveFolder:
    """The folder `outbox=<uuid>` below a root folder that a person has created."""

    def __init__(self, root: Path, outbox_uuid: UUID) -> None:
        """Raises SettingsError if the root does not exist, is not a folder, or everybody may write there.

        The root is never created, so a root below a mount point is missing while the volume is not mounted.
        """
        self.shown = f"{root}/outbox={outbox_uuid}"
        try:
            mode = root.stat().st_mode
        except OSError as error:
            raise SettingsError(
                f"[retention] archive: {error.strerror}: {str(root)!r}. Mount it, or make the folder with mode 0700"
            ) from error
        if not stat.S_ISDIR(mode) or mode & stat.S_IWOTH:
            raise SettingsError(
                f"[retention] archive: {str(root)!r} is not a folder, or everybody may write there. Let only its owner write (chmod 0700)"
            )
        self._root = root
        self._own = f"outbox={outbox_uuid}"

    @contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        """Write a file under another name, and rename it when it is durable. See ArchiveFiles."""
        require_writable(name)
        # Each attempt uses the same temporary name, so it replaces the file that a kill left.
        stem = name.partition("/")[2].rpartition("." if name == OWNER else "-")[0]
        with self._folder(f"_writing/{stem}.tmp", make=True) as (folder, own):
            with suppress(FileNotFoundError):
                os.unlink(own, dir_fd=folder)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            try:
                with os.fdopen(os.open(own, flags, 0o600, dir_fd=folder), "wb") as file:
                    yield file
                    file.flush()
                    os.fsync(file.fileno())
                with self._folder(name, make=True) as (target, last):
                    os.rename(own, last, src_dir_fd=folder, dst_dir_fd=target)
                    os.fsync(target)
                    os.fsync(folder)
            except BaseException:
                # If the disk is full, this file may have filled it.
                with suppress(OSError):
                    os.unlink(own, dir_fd=folder)
                raise

    @contextmanager
    def open(self, name: str) -> Iterator[BinaryIO]:
        """Read a file. See ArchiveFiles."""
        require_readable(name)
        try:
            with self._folder(name) as (folder, own):
                # Non-blocking: opening a pipe of that name would wait for ever.
                found = os.open(
                    own, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder
                )
        except OSError as error:
            if error.errno == errno.ENOENT:
                raise FileMissingError(f"{self.shown}/{name} is missing") from error
            if error.errno == errno.ELOOP:
                raise ArchiveDamagedError(f"{self.shown}/{name} is a link, which is not followed") from error
            raise
        with os.fdopen(found, "rb") as file:
            if not stat.S_ISREG(os.fstat(found).st_mode):
                raise ArchiveDamagedError(f"{self.shown}/{name} is no plain file")
            yield file

    def names(self) -> list[str]:
        """Return the names of the files that belong to partitions. See ArchiveFiles."""
        found = []
        try:
            with self._opened(self._own) as own:
                for folder in filter(_FOLDER.fullmatch, os.listdir(own)):
                    with self._opened(folder, own) as inner:
                        found += [f"{folder}/{name}" for name in os.listdir(inner)]
        except FileNotFoundError:
            return []
        return sorted(name for name in found if is_listed(name))

    def remove(self, names: list[str]) -> None:
        """Remove files, durably. See ArchiveFiles."""
        for name in names:
            with self._folder(name) as (folder, own):
                os.unlink(own, dir_fd=folder)
                os.fsync(folder)

    @contextmanager
    def _folder(self, name: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """Open the folder that contains the file `name`; yield its descriptor and the last part of the name."""
        folder, _, last = name.partition("/")
        with (
            self._opened(str(self._root), follow=True) as root,
            self._opened(self._own, root, make=make) as own,
            self._opened(folder, own, make=make) as found,
        ):
            yield found, last

    @contextmanager
    def _opened(
        self, name: str, above: int | None = None, *, make: bool = False, follow: bool = False
    ) -> Iterator[int]:
        if above is None and not follow:
            with self._opened(str(self._root), follow=True) as root, self._opened(name, root) as found:
                yield found
            return
        if make:
            with suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=above)
            # Also if the folder exists: a process that was killed may have created it without this fsync.
            if above is not None:
                os.fsync(above)
        try:
            found = os.open(name, _OPEN_FOLDER | (0 if follow else os.O_NOFOLLOW), dir_fd=above)
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.ELOOP):
                raise ArchiveDamagedError(
                    f"{self.shown}: {name!r} is not a folder, or it is a link. Links are not followed"
                ) from error
            raise
        try:
            status = os.fstat(found)
            if make and (status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)):
                raise ArchiveDamagedError(
                    f"{self.shown}: {name!r} is another user's, or others may write there. Run as its owner, and chmod 0700 it"
                )
            yield found
        finally:
            os.close(found)
