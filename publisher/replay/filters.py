"""What a replay is asked for. Pure: no Postgres, no Kafka."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from service.errors import SettingsError

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}


@dataclass(frozen=True, slots=True)
class Moment:
    """A time, or how many seconds ago by the clock of Postgres. One of the two."""

    at: datetime | None = None
    age_s: float | None = None


@dataclass(frozen=True, slots=True)
class Filters:
    """All of them must hold. Batches are inclusive; `since` <= a batch's commit < `until`; None: not asked for."""

    from_batch: int | None = None
    to_batch: int | None = None
    since: Moment | None = None
    until: Moment | None = None
    keys: tuple[str, ...] | None = None
    topics: tuple[str, ...] | None = None

    @property
    def empty(self) -> bool:
        """Whether nothing is left out."""
        asked = (self.from_batch, self.to_batch, self.since, self.until, self.keys, self.topics)
        return all(filter_ is None for filter_ in asked)


def parse_moment(text: str, option: str) -> Moment:
    """Read `2h`, `1d12h` (ago) or an ISO 8601 time, UTC unless it says otherwise. Raises SettingsError."""
    parts = _DURATION.findall(text)
    if parts and "".join(number + unit for number, unit in parts) == text:
        return Moment(age_s=sum(float(number) * _SECONDS[unit] for number, unit in parts))
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise SettingsError(
            f"{option} {text!r} is neither a time (2026-11-21T18:00:00Z, UTC unless it says otherwise) nor a duration "
            "before now (90s, 30m, 2h, 1d12h)"
        ) from None
    return Moment(at=at if at.tzinfo is not None else at.replace(tzinfo=UTC))


def read_keys(keys: Iterable[str], file: Path | None) -> tuple[str, ...] | None:
    """Return the session keys of `--key` and `--keys-file`, each once; None where neither was given. Raises SettingsError."""
    found = list(keys)
    if file is None and not found:
        return None
    if file is not None:
        try:
            text = file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"--keys-file {str(file)!r} cannot be read: {error}") from error
        # By line feeds alone: str.splitlines also splits at characters that a key may hold.
        found += [line.removesuffix("\r") for line in text.split("\n")]
    unique = tuple(sorted({key for key in found if key}))
    if not unique:
        raise SettingsError("--key and --keys-file name no session key: name one on each line")
    if any("\0" in key for key in unique):
        raise SettingsError(
            "a session key holds no NUL character; is --keys-file a text file, one key a line?"
        )
    return unique


def as_json(filters: Filters) -> dict[str, Any]:
    """Return what was asked for, to be shown later. Keys are counted: they are kept in a table of their own."""
    found: dict[str, Any] = {
        name: getattr(filters, name)
        for name in ("from_batch", "to_batch")
        if getattr(filters, name) is not None
    }
    for name, moment in (("since", filters.since), ("until", filters.until)):
        if moment is not None:
            found[name] = (
                moment.at.isoformat() if moment.at is not None else f"{moment.age_s:g}s before it was made"
            )
    if filters.keys is not None:
        found["keys"] = len(filters.keys)
    if filters.topics is not None:
        found["topics"] = list(filters.topics)
    return found
