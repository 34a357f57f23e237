"""From the settings file to the assembler's settings, and the fingerprint that a generation keeps of them."""

import hashlib
from collections.abc import Mapping
from typing import Any

import orjson

from db.settings import SessionSettings, Settings
from spark_job.sessions import AssemblySettings

_PARALLELISM = ("buckets", "shuffle_partitions")


def assembly_settings(settings: Settings) -> AssemblySettings:
    """Return what the assembler must know."""
    return _assembly_settings(settings.session)


def assembly_of(description: Mapping[str, Any]) -> AssemblySettings:
    """Return what the assembler knew in a generation; `description` is what `described` returned then."""
    known = {name: value for name, value in description.items() if name in SessionSettings.model_fields}
    return _assembly_settings(SessionSettings(**known))


def _assembly_settings(session: SessionSettings) -> AssemblySettings:
    return AssemblySettings(
        type_path=_path(session.type),
        key_path=_path(session.key),
        start=session.start,
        entry=session.entry,
        end=session.end,
        event_id_path=_path(session.event_id),
        time_path=_path(session.time),
        time_format=session.time_format,
        timeout_ms=round(session.timeout_s * 1000),
        grace_ms=round(session.grace_s * 1000),
        max_events=session.max_events,
        max_bytes=session.max_bytes,
        max_bucket_bytes=session.max_bucket_bytes,
    )


def described(settings: Settings) -> dict[str, Any]:
    """Return every setting that decides what a session is or how its state lies in the checkpoint.

    `max_bucket_bytes` is not among them: it stops the job and changes nothing else.
    """
    return {
        "topics": list(settings.source.topics),
        **settings.session.model_dump(exclude={"max_bucket_bytes"}),
        "buckets": settings.job.buckets,
        "shuffle_partitions": settings.job.shuffle_partitions,
    }


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return what differs between two descriptions, for people. Buckets and shuffle partitions are the generation's own: no change."""
    return [
        f"{name}: {before.get(name)!r} -> {now.get(name)!r}"
        for name in sorted({*before, *now} - {*_PARALLELISM})
        if before.get(name) != now.get(name)
    ]


def with_parallelism(description: Mapping[str, Any], of: Mapping[str, Any]) -> dict[str, Any]:
    """Return `description` with the buckets and shuffle partitions of another one: only a rescale changes them."""
    return {**description, **{name: of[name] for name in _PARALLELISM if name in of}}


def fingerprint(description: Mapping[str, Any]) -> str:
    """Return a hash of `described`."""
    return hashlib.sha256(orjson.dumps(dict(description), option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]


def _path(setting: str | None) -> tuple[str, ...] | None:
    return tuple(setting.removeprefix("$.").split(".")) if setting and setting.startswith("$.") else None
