"""Files that may hold session keys: only their owner may read them. Also tells whether others may write a file."""

import grp
import os
import pwd
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from service.errors import SettingsError


def private(path: str, flags: int) -> int:
    """Open a file for `open(..., opener=private)`; only its owner can read a new file.

    Raises OSError; SettingsError for another user's file, pipe or link, which stays unchanged.
    """
    no_link = os.O_NOFOLLOW
    with suppress(FileNotFoundError):
        there = os.lstat(path)
        if stat.S_ISLNK(there.st_mode):
            if is_of_another_user(there):
                raise SettingsError(
                    f"{str(path)!r} is another user's link, by which any file of yours could be overwritten. Name another file"
                )
            no_link = 0
        else:
            # Checked first: opening a pipe waits for its reader.
            _refuse_of_others(path, there)
    descriptor = os.open(path, flags & ~os.O_TRUNC | no_link, 0o600)
    found = os.fstat(descriptor)
    try:
        if no_link or stat.S_ISREG(found.st_mode):
            _refuse_of_others(path, found)
    except SettingsError:
        os.close(descriptor)
        raise
    if stat.S_ISREG(found.st_mode) and flags & os.O_TRUNC:
        os.ftruncate(descriptor, 0)
    return descriptor


def is_of_another_user(found: os.stat_result) -> bool:
    """Return whether a file or link belongs to somebody other than this user and root."""
    return found.st_uid not in (0, os.geteuid())


def others_may_write(found: os.stat_result) -> bool:
    """Return whether somebody other than this user and root may write there: the owner, everybody, or a group.

    A group with this user's name is taken as this user's alone: with a umask of 0002 it may write all files.
    """
    if is_of_another_user(found) or found.st_mode & stat.S_IWOTH:
        return True
    return bool(found.st_mode & stat.S_IWGRP) and found.st_gid != 0 and not _is_own_group(found.st_gid)


def _is_own_group(group: int) -> bool:
    try:
        user, named = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    return (named.gr_gid, named.gr_name) == (user.pw_gid, user.pw_name) and set(named.gr_mem) <= {
        user.pw_name
    }


def _refuse_of_others(path: str, found: os.stat_result) -> None:
    """Raise SettingsError for another user's file or pipe. A terminal, or /dev/null, may be anybody's."""
    keeps = stat.S_ISREG(found.st_mode) or stat.S_ISFIFO(found.st_mode)
    if keeps and found.st_uid != os.geteuid():
        raise SettingsError(
            f"{str(path)!r} is another user's, who could read or change what is written there. Name another file"
        )


def write_private(path: Path, text: str, option: str) -> None:
    """Write a text. An existing file keeps its mode. `option`: the option that named the file. Raises SettingsError."""
    with writing(path, option), open(path, "w", encoding="utf-8", opener=private) as file:
        file.write(text)


def check_writable(path: Path, option: str) -> None:
    """Raise SettingsError for a file that cannot be written, before long work begins. Leaves no new file, and changes none."""
    with writing(path, option):
        # Opening a pipe would wait for its reader.
        if path.is_fifo():
            return
        is_new = not path.exists()
        with open(path, "ab", opener=private):
            pass
        if is_new:
            path.resolve().unlink()


@contextmanager
def writing(path: Path, option: str) -> Iterator[None]:
    """Raise SettingsError for an OSError."""
    try:
        yield
    except OSError as error:
        raise SettingsError(
            f"{option} {str(path)!r} cannot be written: {error.strerror or error}. Name a file in a folder that is there, that you may "
            "write to, and that has room"
        ) from error
