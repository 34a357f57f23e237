"""The assembly description: every setting that decides what a session is. A generation keeps it, and the earlier ones in its lineage."""

from collections.abc import Mapping
from typing import Any

from service.settings import Settings


def described(settings: Settings) -> dict[str, Any]:
    """Return the description that the settings file gives, JSON-ready."""
    description = settings.session.model_dump(exclude={"max_open_bytes"})
    # Descriptions of JSON are what they were before there were other formats.
    if settings.source.format != "json":
        description |= settings.source.model_dump(include={"format", "schema_id"})
    return description


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return what differs between two descriptions, for people."""
    return [
        f"{name}: {before.get(name)!r} -> {now.get(name)!r}"
        for name in sorted({*before, *now})
        if before.get(name) != now.get(name)
    ]
