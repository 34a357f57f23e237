"""The assembly rules: every setting that decides what a session is.

A generation stores its rules as JSON. rules_lineage.py decides which rules apply to which offset.
"""

from collections.abc import Mapping
from typing import Any

from service.settings import SessionSettings, Settings
from spark_job.assembly.slices import AppliedRules, RulesFrom
from spark_job.input.columns import CLOCK_HEADER, RecordColumns
from spark_job.input.offsets import TopicPartition
from spark_job.ledger.generations import Generation
from spark_job.sessions.settings import RULES_VERSION, AssemblySettings

_SINCE_RULES_2 = {"max_open_bytes"}
_SAME_WITHOUT_TIME_FIELD = 2
"""The rules version that judges as the newest one does unless the events' time is a field. So it is still stored without such a field."""
_LATER: dict[str, Any] = {"on_timeout": "dead_letter", "clock_records": False}
"""Settings that are not stored at their defaults, because earlier releases stored rules without them."""


def stored_rules(settings: Settings) -> dict[str, Any]:
    """Return the rules of the settings file as a generation keeps them, JSON-ready."""
    assembly = settings.session.model_dump()
    for name, default in _LATER.items():
        if assembly[name] == default:
            del assembly[name]
    if isinstance(assembly["entry"], tuple):
        assembly["entry"] = list(assembly["entry"])
    assembly["rules"] = RULES_VERSION if _path(assembly["time"]) else _SAME_WITHOUT_TIME_FIELD
    # The rules of JSON input are stored without the format, so that they equal the rules stored before other formats existed.
    if settings.source.format != "json":
        assembly |= settings.source.model_dump(include={"format", "schema_id"})
    return assembly


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return what differs between two generations' rules, for people. A newer rules version and the settings that it adds do not count."""
    upgraded = set[str]() if _version(before) > _version(now) else {"rules"}
    if has_newer_rules(before, now):
        upgraded |= _SINCE_RULES_2 - before.keys()
    before, now = {**_LATER, **before}, {**_LATER, **now}
    return [
        f"{name}: {before.get(name)!r} -> {now.get(name)!r}"
        for name in sorted({*before, *now} - upgraded)
        if before.get(name) != now.get(name)
    ]


def has_newer_rules(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Return whether `now` has a newer rules version than `before`."""
    return _version(now) > _version(before)


def _version(assembly: Mapping[str, Any]) -> int:
    """Return the newest rules version that judges as these rules do."""
    stored: int = assembly.get("rules", 1)
    is_same = stored == _SAME_WITHOUT_TIME_FIELD and not _path(assembly.get("time"))
    return RULES_VERSION if is_same else stored


def applied_rules(assembly: Mapping[str, Any]) -> AppliedRules:
    """Return stored rules as a task applies them. Settings added by later versions get their defaults; without
    `max_open_bytes` there is no limit.
    """
    known = {name: value for name, value in assembly.items() if name in SessionSettings.model_fields}
    session = SessionSettings(**known)
    schema_id = assembly.get("schema_id", "payload")
    rules = AssemblySettings(
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
        clock_records=session.clock_records,
        on_timeout=session.on_timeout,
        max_events=session.max_events,
        max_bytes=session.max_bytes,
        format=assembly.get("format", "json"),
        schema_id_in_header=schema_id != "payload",
        max_open_bytes=assembly.get("max_open_bytes"),
        rules_version=_version(assembly),
    )
    columns = {"key": session.key, "type": session.type, "event_id": session.event_id, "schema_id": schema_id}
    sources = {
        name: "" if setting == "key" else setting.removeprefix("header:")
        for name, setting in columns.items()
        if setting is not None and (setting == "key" or setting.startswith("header:"))
    }
    if session.clock_records:
        sources["clock"] = CLOCK_HEADER
    return AppliedRules(rules, RecordColumns(sources))


def rules_since(generation: Generation, where: TopicPartition, safe: int) -> tuple[RulesFrom, ...]:
    """Return the rules for a partition's events from `safe` on, by offset. The last entry applies to new events."""
    entries = generation.lineage.since(where, safe, generation.start, generation.assembly)
    return tuple(RulesFrom(begin, applied_rules(assembly)) for begin, assembly in entries)


def _path(setting: str | None) -> tuple[str, ...] | None:
    return tuple(setting.removeprefix("$.").split(".")) if setting and setting.startswith("$.") else None
