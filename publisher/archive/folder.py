"""The files of one outbox's archive. Only this module touches the disk: names are checked, links not followed, what is written is durable.

A name is relative to the outbox's folder, and one of the three forms below; so nothing that a manifest says leads anywhere else.
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

from service.errors import ContinuityError, SettingsError

_DATA = re.compile(r"day=\d{4}-\d{2}-\d{2}/session_output_p\d{8}-\d{4}-[0-9a-f]{16}\.parquet", re.ASCII)
_MANIFEST = re.compile(r"_manifests/session_output_p\d{8}-[0-9a-f]{16}\.json", re.ASCII)
_WRITING = re.compile(r"_writing/session_output_p\d{8}(-\d{4})?\.tmp", re.ASCII)
_FOLDER = re.compile(r"day=\d{4}-\d{2}-\d{2}|_manifests|_writing", re.ASCII)
_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class ArchiveDamagedError(ContinuityError):
    """The archive is not what the outbox has recorded of it."""


def data_name(day: str, partition: str, number: int, digest: str) -> str:
    """Return the name of a file with rows; `digest` in hexadecimal."""
    return f"day={day}/{partition}-{number:04d}-{digest[:16]}.parquet"


def manifest_name(partition: str, digest: str) -> str:
    """Return the name of a manifest; `digest` in hexadecimal."""
    return f"_manifests/{partition}-{digest[:16]}.json"


def writing_name(partition: str, number: int | None = None) -> str:
    """Return the name of a file while it is written; `number` None: the manifest."""
    return f"_writing/{partition}{'' if number is None else f'-{number:04d}'}.tmp"


def partition_of(name: str) -> str:
    """Return the partition that a file belongs to."""
    return name.partition("/")[2][: len("session_output_p00000000")]


class ArchiveFolder:
    """The folder `outbox=<uuid>` below a root that a person has made."""

    def __init__(self, root: Path, outbox_uuid: UUID) -> None:
        """Raises SettingsError where there is no root: a volume that is not mounted must not be filled beside."""
        self.shown = f"{root}/outbox={outbox_uuid}"
        try:
            mode = root.stat().st_mode
        except OSError as error:
            raise SettingsError(
                f"[retention] archive: {error.strerror}: {str(root)!r}. Mount it, or make the folder with mode 0700"
            ) from error
        if not stat.S_ISDIR(mode) or mode & stat.S_IWOTH:
            raise SettingsError(
                f"[retention] archive: {str(root)!r} is not a folder, or everybody may write there. It must be its owner's (chmod 0700)"
            )
        self._root = root
        self._own = f"outbox={outbox_uuid}"

    @contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        """Write a new file of `_writing`; it is durable after the block, and gone after an error. What has the name already is replaced.

        Raises OSError.
        """
        _require(_WRITING, name)
        with self._folder(name, make=True) as (folder, own):
            with suppress(FileNotFoundError):
                os.unlink(own, dir_fd=folder)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            try:
                with os.fdopen(os.open(own, flags, 0o600, dir_fd=folder), "wb") as file:
                    yield file
                    file.flush()
                    os.fsync(file.fileno())
            except BaseException:
                # On a full disk, it is what fills it.
                with suppress(OSError):
                    os.unlink(own, dir_fd=folder)
                raise

    def publish(self, writing: str, name: str) -> None:
        """Give a written file its name, durably. Raises OSError."""
        if not _DATA.fullmatch(name):
            _require(_MANIFEST, name)
        with self._folder(writing) as (source, old), self._folder(name, make=True) as (target, new):
            os.rename(old, new, src_dir_fd=source, dst_dir_fd=target)
            os.fsync(target)
            os.fsync(source)

    @contextmanager
    def open(self, name: str) -> Iterator[BinaryIO]:
        """Read a file. Raises ArchiveDamagedError where it is not there or no plain file, OSError."""
        if not _is_name(name):
            raise ArchiveDamagedError(f"{name!r} is no name of a file in an archive")
        try:
            with self._folder(name) as (folder, own):
                # Not blocking: a pipe in its place would never answer.
                found = os.open(
                    own, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder
                )
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ELOOP):
                raise ArchiveDamagedError(
                    f"{self.shown}/{name} is missing, or a link, which is not followed"
                ) from error
            raise
        with os.fdopen(found, "rb") as file:
            if not stat.S_ISREG(os.fstat(found).st_mode):
                raise ArchiveDamagedError(f"{self.shown}/{name} is no plain file")
            yield file

    def names(self) -> list[str]:
        """Return the files of the archive, sorted; what has another form of name is none of them. Raises OSError."""
        found = []
        try:
            with self._opened(self._own) as own:
                for folder in filter(_FOLDER.fullmatch, os.listdir(own)):
                    with self._opened(folder, own) as inner:
                        found += [f"{folder}/{name}" for name in os.listdir(inner)]
        except FileNotFoundError:
            return []
        return sorted(name for name in found if _is_name(name))

    def remove(self, names: list[str]) -> None:
        """Remove files, durably. Raises OSError."""
        for name in names:
            with self._folder(name) as (folder, own):
                os.unlink(own, dir_fd=folder)
                os.fsync(folder)

    @contextmanager
    def _folder(self, name: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """Open the folder of a name; yield it and the last part of the name."""
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
            # Also where it is there: whoever has made it may have been killed before this.
            if above is not None:
                os.fsync(above)
        try:
            found = os.open(name, _OPEN_FOLDER | (0 if follow else os.O_NOFOLLOW), dir_fd=above)
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.ELOOP):
                raise ArchiveDamagedError(
                    f"{self.shown}: {name!r} is no folder, or a link to one, which is not followed"
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


def _is_name(name: str) -> bool:
    return any(form.fullmatch(name) for form in (_DATA, _MANIFEST, _WRITING))


def _require(form: re.Pattern[str], name: str) -> None:
    if not form.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a file in an archive")
