"""Keeps the progress of an audit of the topics in a directory, so that a killed audit continues."""

import os
import secrets
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson

from service.errors import SettingsError
from service.private_file import check_writable, is_of_another_user, others_may_write, private

_VERSION = 7


@dataclass(slots=True)
class AuditState:
    """The values frozen at the beginning, and the progress of the two scans. Offsets are by topic number and partition."""

    asked: dict[str, Any]
    """Outbox, cluster and limits. An audit with other values cannot use the state."""
    scope: dict[str, Any]
    known_to: int
    """The newest batch, read after the ends: no record below the ends belongs to a later batch."""
    topics: list[str]
    buckets: int
    replaced: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    compacted: list[str] = field(default_factory=list)
    """Topics that were compacted before or after the audit read them."""
    foreign: list[str] = field(default_factory=list)
    """Topics with records that are not of this outbox, because others write to them."""
    begins: list[dict[str, int]] = field(default_factory=list)
    ends: list[dict[str, int]] = field(default_factory=list)
    next_offsets: list[dict[str, int]] = field(default_factory=list)
    lows: list[dict[str, int]] | None = None
    """Low watermarks after the topics were read; None until then."""
    next_batch: int = 0
    found_sizes: list[int] = field(default_factory=list)
    expected_sizes: list[int] = field(default_factory=list)
    counted: dict[str, int] = field(default_factory=dict)
    malformed: list[str] = field(default_factory=list)
    """Findings: offsets of deliveries in a form that no publisher writes."""
    seed: str = field(default_factory=lambda: secrets.token_hex(16))
    """The seed of the buckets, in hex."""
    inputs: list[str] = field(default_factory=list)
    """Ids of the input topics, by number."""


def load(folder: Path, asked: dict[str, Any]) -> AuditState | None:
    """Return the state that a killed audit left; None if there is none.

    Raises SettingsError if the state is damaged or belongs to another audit, or if the folder, a link to it, or the file is another user's,
    or others may write to it.
    """
    path = folder / "state.json"
    found = [each.stat() for each in (folder, path) if each.exists()]
    is_planted = folder.is_symlink() and is_of_another_user(os.lstat(folder))
    if is_planted or any(each.st_uid != os.geteuid() or others_may_write(each) for each in found):
        raise SettingsError(
            f"{folder} is another user's, or others may write to it: they could change the findings of an audit with its state there. "
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
    """Create the folder before long work begins. Raises SettingsError if it cannot be created or written to."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(
            f"--state {str(folder)!r} cannot be created: {error.strerror}. Name another folder"
        ) from error
    check_writable(folder / "state.json.new", "--state")


def save(folder: Path, state: AuditState) -> None:
    """Save the state. After a crash the directory has either the complete former state or this one."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    written = folder / "state.json.new"
    with open(written, "wb", opener=private) as file:
        file.write(orjson.dumps({"version": _VERSION, **asdict(state)}))
        file.flush()
        os.fsync(file.fileno())
    written.replace(folder / "state.json")


def forget(folder: Path) -> None:
    """Remove the state and the files of a finished audit."""
    # Only files with names that Spill gives: the user may keep other files in the folder.
    spills = (
        f"{name}-{'[0-9]' * 5}"
        for name in ("found", "expected", "order", "emitted", "compacted", "consumed", "visited")
    )
    for pattern in (*spills, "state.json", "state.json.new"):
        for path in folder.glob(pattern):
            path.unlink()
