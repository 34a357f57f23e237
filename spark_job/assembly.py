"""From the settings file to the assembler's settings, and the fingerprint that a generation keeps of them."""

import hashlib
from typing import Any

import orjson

from db.settings import Settings
from spark_job.sessions import AssemblySettings


def assembly_settings(settings: Settings) -> AssemblySettings:
    """Return what the assembler must know."""
    session = settings.session
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


def fingerprint(description: dict[str, Any]) -> str:
    """Return a hash of `described`."""
    return hashlib.sha256(orjson.dumps(description, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]


def _path(setting: str | None) -> tuple[str, ...] | None:
    return tuple(setting.removeprefix("$.").split(".")) if setting and setting.startswith("$.") else None
