"""Dead letters as tables for people and as JSON for machines."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import orjson
from rich.markup import escape
from rich.table import Table

from spark_job.api import utc
from spark_job.dead_letters.store import StoredLetter

if TYPE_CHECKING:
    from spark_job.dead_letters.retry import Outcome

_SHOWN_CHARS = 60


def dump(value: object) -> str:
    """Return indented JSON; times as ISO 8601."""
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()


def counts_table(counts: Sequence[Mapping[str, Any]]) -> Table:
    """Return the letters and events by reason and state."""
    table = Table("reason", "state", "letters", "events")
    for row in counts:
        table.add_row(row["reason"], row["state"], f"{row['letters']:,}", f"{row['events']:,}")
    return table


def letters_table(letters: Sequence[Mapping[str, Any]]) -> Table:
    """Return one line a letter."""
    table = Table(
        "id", "reason", "state", "session key", "events at", "closed at", "kept", "written", "detail"
    )
    for row in letters:
        state = f"{row['state']} by {row['resolved_batch']}" if row["resolved_batch"] else row["state"]
        table.add_row(
            str(row["dead_letter_id"]),
            row["reason"] + (f", revision {row['revision']}" if row["revision"] else ""),
            state,
            escape(row["session_key"] or ""),
            f"{escape(row['topic'])}/{row['partition']} {row['first_offset']}-{row['last_offset']}",
            str(row["closing_offset"]),
            f"{row['kept']} of {row['event_count']}",
            f"{row['created_at']:%F %T}",
            escape(_last_line(row["detail"])),
        )
    return table


def letter_json(letter: StoredLetter) -> dict[str, Any]:
    """Return all of a letter; each event's value as `text`, as `hex` where it is not UTF-8, or neither where it has none."""
    types = letter.event_types or [None] * len(letter.event_offsets)
    columns = (letter.event_offsets, letter.event_times_ms, types, letter.event_values)
    return {name: value for name, value in vars(letter).items() if not name.startswith("event_")} | {
        "event_count": letter.event_count,
        "events": [
            {"offset": offset, "time": time(ms)}
            | ({"type": kind} if kind is not None else {})
            | _value(value)
            for offset, ms, kind, value in zip(*columns, strict=True)
        ],
    }


def letter_tables(letter: StoredLetter) -> list[Table | str]:
    """Return a letter for people: what is known of it, its detail (the traceback), its kept events."""
    about = Table(show_header=False)
    where = f"{letter.topic}/{letter.partition} (topic id {letter.topic_id})"
    state = f"{letter.state} by batch {letter.resolved_batch}" if letter.resolved_batch else letter.state
    for name, value in (
        ("letter", f"{letter.dead_letter_id}: {letter.reason}, revision {letter.revision}"),
        ("state", f"{state}, since {letter.state_changed_at:%F %T} UTC"),
        ("session key", "none" if letter.session_key is None else letter.session_key),
        ("input", where),
        ("events at", f"{letter.first_offset} to {letter.last_offset}, closed at {letter.closing_offset}"),
        ("events", f"{len(letter.event_offsets)} kept of {letter.event_count}"),
        (
            "written",
            f"{letter.created_at:%F %T} UTC with batch {letter.batch_id}, generation {letter.generation}",
        ),
    ):
        about.add_row(name, escape(value))
    events = Table("offset", "time", "type", "value")
    for event in letter_json(letter)["events"]:
        value = event.get("text", f"hex {event['hex']}" if "hex" in event else "no value")
        events.add_row(str(event["offset"]), event["time"], escape(event.get("type", "")), escape(value))
    return [about, escape(letter.detail), events]


def outcome_json(outcome: "Outcome", *, dry_run: bool) -> dict[str, Any]:
    """Return what a retry did."""
    return {
        "dry_run": dry_run,
        "batches": outcome.batches,
        "retried": [
            {"id": one.letter.dead_letter_id, "output_events": one.session.outputs.events}
            for one in outcome.retried
        ],
        "output_events": outcome.output_events,
        "also_resolved": outcome.covered,
        "refused": [{"id": one.dead_letter_id, "because": one.because} for one in outcome.refused],
        "failed": [
            {"id": one.dead_letter_id, "error": one.error, "traceback": one.traceback}
            for one in outcome.failed
        ],
    }


def outcome_lines(outcome: "Outcome", *, dry_run: bool) -> list[str]:
    """Return what a retry did, for people; what is refused or fails for one reason stands together."""
    which = "that would be retried" if dry_run else "retried"
    lines = [f"letters {which}: {len(outcome.retried)}, output events: {outcome.output_events}"]
    if outcome.batches:
        lines[0] += (
            f", batches {outcome.batches[0]} to {outcome.batches[-1]}"
            if len(outcome.batches) > 1
            else (f", batch {outcome.batches[0]}")
        )
    if outcome.covered:
        lines.append(f"older letters of the same events, resolved with them: {outcome.covered}")
    by_reason: dict[str, list[int]] = {}
    for one in outcome.refused:
        by_reason.setdefault(one.because, []).append(one.dead_letter_id)
    lines += [f"refused {_ids(ids)}: {because}" for because, ids in by_reason.items()]
    alike: dict[tuple[str, str], list[int]] = {}
    for failure in outcome.failed:
        alike.setdefault((failure.error, failure.traceback), []).append(failure.dead_letter_id)
    lines += [f"failed again {_ids(ids)}: {error}\n{trace.rstrip()}" for (error, trace), ids in alike.items()]
    return lines


def time(epoch_ms: int) -> str:
    """Return a time of an event; the bare number where it is outside of what a date can say."""
    try:
        return utc(epoch_ms).isoformat(timespec="milliseconds")
    except OverflowError:
        return str(epoch_ms)


def json_ready(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with its times as text."""
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in row.items()}


def _value(value: bytes | None) -> dict[str, str]:
    if value is None:
        return {}
    try:
        return {"text": value.decode()}
    except UnicodeDecodeError:
        return {"hex": value.hex()}


def _last_line(text: str) -> str:
    line = text.rstrip().rpartition("\n")[2]
    return line if len(line) <= _SHOWN_CHARS else line[: _SHOWN_CHARS - 1] + "…"


def _ids(ids: Sequence[int]) -> str:
    shown = ", ".join(map(str, ids[:10]))
    return shown if len(ids) <= 10 else f"{shown} and {len(ids) - 10} more"
