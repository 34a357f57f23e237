"""Times and durations as people write them in a flag: 2h, 1d12h, 2026-01-31T12:00."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from service.errors import SettingsError

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}

SINCE = "30m, 12h or 1d12h ago, or a time (ISO 8601, UTC unless it says otherwise)"
"""The forms of a time, for the help of a flag."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Either a time, or an age in seconds. SQL counts the age back from Postgres' clock, `here` from this host's."""

    at: datetime | None = None
    age_s: float | None = None

    def here(self) -> datetime:
        """Return the time; of an age, by this host's clock. Raises SettingsError if that is too long ago."""
        if self.at is not None:
            return self.at
        try:
            return datetime.now(UTC) - timedelta(seconds=self.age_s or 0.0)
        except OverflowError:
            raise SettingsError(
                f"{self.age_s:.0f} seconds ago is before all times that can be named"
            ) from None


def parse_moment(text: str, flag: str) -> Moment:
    """Read `2h`, `1d12h` (ago) or an ISO 8601 time, UTC unless it says otherwise. Raises SettingsError."""
    age_s = _seconds(text)
    if age_s is not None:
        return Moment(age_s=age_s)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise SettingsError(
            f"{flag} {text!r} is neither a time (2026-11-21T18:00:00Z, UTC unless it says otherwise) nor a duration "
            "before now (90s, 30m, 2h, 1d12h)"
        ) from None
    return Moment(at=at if at.tzinfo is not None else at.replace(tzinfo=UTC))


def shown_time(at: datetime) -> str:
    """Return a time for messages."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def parse_pause(text: str, flag: str) -> float:
    """Return the seconds of a pause, `90s` or `1h`. Raises SettingsError."""
    pause_s = _seconds(text)
    if not pause_s:
        raise SettingsError(f"{flag} {text!r} is no pause: write 90s, 30m, 1h or 1d")
    return pause_s


def _seconds(text: str) -> float | None:
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)
