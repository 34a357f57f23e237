"""The assembly description: every setting that decides what a session is. A generation keeps it, and those of before in its lineage."""

import hashlib
from collections.abc import Mapping
from typing import Any

import orjson

from db.settings import Settings


def described(settings: Settings) -> dict[str, Any]:
    """Return the description that the settings file gives, JSON-ready."""
    return settings.session.model_dump(exclude={"max_open_bytes"})


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return what differs between two descriptions, for people."""
    return [
        f"{name}: {before.get(name)!r} -> {now.get(name)!r}"
        for name in sorted({*before, *now})
        if before.get(name) != now.get(name)
    ]


def fingerprint(description: Mapping[str, Any]) -> str:
    """Return a hash of a description."""
    return hashlib.sha256(orjson.dumps(dict(description), option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]
