"""The assembly description: every setting that decides what a session is. A generation keeps it, and the earlier ones in its lineage."""

from collections.abc import Mapping
from typing import Any

from service.settings import SessionSettings, Settings
from spark_job.sessions.settings import RULES

_SINCE_RULES_2 = {"max_open_bytes"}
_LATER: dict[str, Any] = {"on_timeout": SessionSettings().on_timeout}
"""What descriptions leave out at its default, because there were some before it."""


def described(settings: Settings) -> dict[str, Any]:
    """Return the description that the settings file gives, JSON-ready."""
    description = settings.session.model_dump()
    for name, default in _LATER.items():
        if description[name] == default:
            del description[name]
    if isinstance(description["entry"], tuple):
        description["entry"] = list(description["entry"])
    description["rules"] = RULES
    # Descriptions of JSON are what they were before there were other formats.
    if settings.source.format != "json":
        description |= settings.source.model_dump(include={"format", "schema_id"})
    return description


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return what differs between two descriptions, for people; newer rules are none of it."""
    upgraded = {"rules", *(_SINCE_RULES_2 - before.keys())} if has_newer_rules(before, now) else set[str]()
    before, now = {**_LATER, **before}, {**_LATER, **now}
    return [
        f"{name}: {before.get(name)!r} -> {now.get(name)!r}"
        for name in sorted({*before, *now} - upgraded)
        if before.get(name) != now.get(name)
    ]


def has_newer_rules(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Tell whether another release, a later one, judges what comes from now on."""
    return bool(now.get("rules", 1) > before.get("rules", 1))
