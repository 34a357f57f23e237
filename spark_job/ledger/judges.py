"""From a description to what a task applies."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from service.settings import SessionSettings
from spark_job.assembly.slices import Judge
from spark_job.input.columns import RecordColumns
from spark_job.input.offsets import TopicPartition
from spark_job.ledger.generations import Generation
from spark_job.sessions.settings import AssemblySettings


class Assembly(NamedTuple):
    """A description as those that apply it want it."""

    settings: AssemblySettings
    columns: RecordColumns


def assembly_of(description: Mapping[str, Any]) -> Assembly:
    """Return what a description says. What later versions added has its default."""
    known = {name: value for name, value in description.items() if name in SessionSettings.model_fields}
    session = SessionSettings(**known)
    schema_id = description.get("schema_id", "payload")
    settings = AssemblySettings(
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
        on_timeout=session.on_timeout,
        max_events=session.max_events,
        max_bytes=session.max_bytes,
        format=description.get("format", "json"),
        schema_id_in_header=schema_id != "payload",
        max_open_bytes=description.get("max_open_bytes"),
        rules=description.get("rules", 1),
    )
    columns = {"key": session.key, "type": session.type, "event_id": session.event_id, "schema_id": schema_id}
    return Assembly(
        settings,
        RecordColumns(
            {
                name: "" if setting == "key" else setting.removeprefix("header:")
                for name, setting in columns.items()
                if setting is not None and (setting == "key" or setting.startswith("header:"))
            }
        ),
    )


def judges_of(generation: Generation, where: TopicPartition, safe: int) -> tuple[Judge, ...]:
    """Return who judges a partition's events from `safe` on; the last one judges what is new."""
    entries = generation.lineage.since(where, safe, generation.start, generation.assembly)
    return tuple(Judge(begin, *assembly_of(description)) for begin, description in entries)


def _path(setting: str | None) -> tuple[str, ...] | None:
    return tuple(setting.removeprefix("$.").split(".")) if setting and setting.startswith("$.") else None
