"""Keeps the progress of an audit of the topics in a directory, so that a killed audit continues."""

import os
import secrets
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson

from service.errors import SettingsError
from service.private_file import check_writable, is_of_another_user, others_may_write, private

_VERSION = 6


@dataclass(slots=True)
class AuditState:
    """The values that were frozen at the beginning, and how far the two scans are. Offsets by topic number and partition."""

    asked: dict[str, Any]
    """Outbox, cluster and limits: a state is of no use to another audit."""
    scope: dict[str, Any]
    known_to: int
    """Newest batch after the ends were asked for: no record below the ends is of a later one."""
    topics: list[str]
    buckets: int
    replaced: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    compacted: list[str] = field(default_factory=list)
    """Topics that were compacted before or after they were read."""
    foreign: list[str] = field(default_factory=list)
    """Topics with records that are not of this outbox: others write to them."""
    begins: list[dict[str, int]] = field(default_factory=list)
    ends: list[dict[str, int]] = field(default_factory=list)
    next_offsets: list[dict[str, int]] = field(default_factory=list)
    lows: list[dict[str, int]] | None = None
    """Low watermarks after the topics were read; None while they are."""
    next_batch: int = 0
    found_sizes: list[int] = field(default_factory=list)
    expected_sizes: list[int] = field(default_factory=list)
    counted: dict[str, int] = field(default_factory=dict)
    malformed: list[str] = field(default_factory=list)
    """Findings on offsets of deliveries that no publisher writes."""
    seed: str = field(default_factory=lambda: secrets.token_hex(16))
    """The seed of the buckets, in hex."""
    inputs: list[str] = field(default_factory=list)
    """Ids of the input topics, by number."""


def load(folder: Path, asked: dict[str, Any]) -> AuditState | None:
    """Return the state that a killed audit left, None where there is none.

    Raises SettingsError for another audit's, and for a folder or file that another user has or may write to, or a link of theirs.
    """
    path = folder / "state.json"
    found = [each.stat() for each in (folder, path) if each.exists()]
    is_planted = folder.is_symlink() and is_of_another_user(os.lstat(folder))
    if is_planted or any(each.st_uid != os.geteuid() or others_may_write(each) for each in found):
        raise SettingsError(
            f"{folder} is another user's, or others may write to it: they would decide what an audit finds that keeps its state there. "
            f"Name another --state, or `chmod -R go-w {folder}` if all in it is yours"
        )
    if not path.exists():
        return None
    try:
        value: dict[str, Any] = dict(orjson.loads(path.read_bytes()))
    except (ValueError, TypeError) as error:
        raise SettingsError(
            f"{path} is damaged: {error}. Delete the directory, and start the audit again"
        ) from error
    if value.pop("version", None) != _VERSION or value.get("asked") != asked:
        raise SettingsError(
            f"{folder} holds the state of another audit: {value.get('asked')}, this one is {asked}. Name another --state, "
            "or delete the directory"
        )
    return AuditState(**value)


def make_folder(folder: Path) -> None:
    """Make it, before long work begins. Raises SettingsError where it cannot be made or written to."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(
            f"--state {str(folder)!r} cannot be made: {error.strerror}. Name another folder"
        ) from error
    check_writable(folder / "state.json.new", "--state")


def save(folder: Path, state: AuditState) -> None:
    """Save the state: after a crash the directory has the former state or this one, never a half."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    written = folder / "state.json.new"
    with open(written, "wb", opener=private) as file:
        file.write(orjson.dumps({"version": _VERSION, **asdict(state)}))
        file.flush()
        os.fsync(file.fileno())
    written.replace(folder / "state.json")


def forget(folder: Path) -> None:
    """Remove the state and the files of a finished audit."""
    # As Spill names them: the folder is the user's, who may keep other files there.
    spills = (
        f"{name}-{'[0-9]' * 5}"
        for name in ("found", "expected", "order", "emitted", "compacted", "consumed", "visited")
    )
    for pattern in (*spills, "state.json", "state.json.new"):
        for path in folder.glob(pattern):
            path.unlink()
