"""Whom Postgres runs as: it refuses root, so root runs it as `nobody`, in places that `nobody` can reach.

Nothing of the caller's is opened up for that. Where the caller's folder is closed to others (a home of mode
0700, a temporary folder), the files go to a folder of root's under /var/tmp instead.
"""

import hashlib
import os
import pwd
import shutil
import stat
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from devstack.processes.errors import DevstackError

_SHARED = Path("/var/tmp/spark-outbox-root")


@dataclass(frozen=True)
class Account:
    """An operating-system user to run a server as."""

    uid: int
    gid: int


def server_account() -> Account | None:
    """The account for servers that refuse root; None when we are an ordinary user and need no other."""
    if os.geteuid() != 0:
        return None
    entry = pwd.getpwnam("nobody")
    return Account(entry.pw_uid, entry.pw_gid)


def reachable_folder(wanted: Path, account: Account | None) -> Path:
    """`wanted`, created, where the account can reach it; else a folder under /var/tmp in its place."""
    if account is None:
        wanted.mkdir(parents=True, exist_ok=True)
        return wanted
    wanted.parent.mkdir(parents=True, exist_ok=True)
    if not _is_open_to_others(wanted):
        wanted = _stand_in(wanted)
    wanted.mkdir(exist_ok=True)
    os.chown(wanted, account.uid, account.gid)
    return wanted


def reachable_copy(base: Path, parts: Sequence[str], name: str, account: Account | None) -> Path:
    """`base`, where the account can reach it; else a folder under /var/tmp with copies of its `parts`."""
    if account is None or all(_is_open_to_others(base / part / "any") for part in parts):
        return base
    copy = _shared_folder() / name
    if not copy.exists():
        # A half-made copy must never be taken for a whole one: the rename is the last step.
        with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=copy.parent) as scratch:
            made = Path(scratch) / "copy"
            for part in parts:
                shutil.copytree(base / part, made / part, symlinks=True)
            try:
                made.rename(copy)
            except OSError:
                # Another process was faster; its copy is as good.
                if not copy.exists():
                    raise
    return copy


def _stand_in(wanted: Path) -> Path:
    """The folder under /var/tmp for `wanted`. Those whose caller has deleted its folder since are removed."""
    shared = _shared_folder()
    for origin in shared.glob("data-*/origin"):
        if not Path(origin.read_text(encoding="utf-8")).exists():
            shutil.rmtree(origin.parent, ignore_errors=True)
    home = shared / f"data-{hashlib.sha256(str(wanted).encode()).hexdigest()[:16]}"
    home.mkdir(exist_ok=True)
    scratch = home / f"origin.{os.getpid()}"
    scratch.write_text(str(wanted.parent), encoding="utf-8")
    scratch.replace(home / "origin")
    return home / wanted.name


def _is_open_to_others(path: Path) -> bool:
    # The folder itself may belong to the account already; what counts is the way to it.
    return all(folder.stat().st_mode & stat.S_IXOTH for folder in path.parents)


def _shared_folder() -> Path:
    _SHARED.mkdir(mode=0o755, exist_ok=True)
    found = _SHARED.lstat()
    if found.st_uid != 0 or not stat.S_ISDIR(found.st_mode) or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise DevstackError(f"{_SHARED} is not a folder that only root can write; remove it and try again")
    return _SHARED
