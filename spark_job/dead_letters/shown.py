"""Dead letters as tables for people and as JSON for machines."""

from collections.abc import Callable, Mapping, Sequence
from textwrap import indent
from typing import TYPE_CHECKING, Any

import orjson
from rich.console import Console

from service.commands.tables import Table, print_fields
from service.printable import bytes_json, printable
from spark_job.api import utc
from spark_job.dead_letters.store import StoredLetter

if TYPE_CHECKING:
    from spark_job.dead_letters.outcome import RetryOutcome


def counts_table(counts: Sequence[Mapping[str, Any]]) -> Table:
    """Return the letters and events by reason and state."""
    table = Table(["reason", "state", "letters", "events"])
    for row in counts:
        table.add(row["reason"], row["state"], row["letters"], row["events"])
    return table


def letters_table(letters: Sequence[Mapping[str, Any]]) -> Table:
    """Return one line a letter, with its place and the last line of its detail below."""
    table = Table(["id", "reason", "state", "written (UTC)", "kept", "session key"])
    for row in letters:
        state = f"{row['state']} by {row['resolved_batch']}" if row["resolved_batch"] else row["state"]
        place = (
            f"{row['topic']}/{row['partition']} offsets {row['first_offset']} to {row['last_offset']}, "
            f"closed at {row['closing_offset']}"
        )
        table.add(
            str(row["dead_letter_id"]),
            row["reason"] + (f", revision {row['revision']}" if row["revision"] else ""),
            state,
            row["created_at"],
            f"{row['kept']} of {row['event_count']}",
            row["session_key"],
            note=f"{place}\n{_last_line(row['detail'])}",
        )
    return table


def event_types(letter: StoredLetter, path: Sequence[str] | None) -> list[str | None]:
    """Return the type of each kept event, None for an event without one. `path`: of the JSON field with the type; None if there is none."""
    if letter.event_types is not None:
        return letter.event_types
    if path is None:
        return [None] * len(letter.event_values)
    return [_field(value, path) for value in letter.event_values]


def _field(value: bytes | None, path: Sequence[str]) -> str | None:
    """Return the string at `path` in a JSON document; None if there is none, which may be why the record is a letter."""
    try:
        found = orjson.loads(value or b"null")
    except orjson.JSONDecodeError:
        return None
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, str) else None


Readable = Callable[[bytes], str | None]
"""Turns a value into JSON text; None if it cannot."""


def letter_json(
    letter: StoredLetter, types: Sequence[str | None], readable: Readable | None = None
) -> dict[str, Any]:
    """Return all of a letter; each event's value as `text`, as `hex` if it is not UTF-8, or neither if it has none.

    With `readable`, `decoded` is its result for the value, left out if None.
    """
    columns = (letter.event_offsets, letter.event_times_ms, types, letter.event_values)
    return {name: value for name, value in vars(letter).items() if not name.startswith("event_")} | {
        "event_count": letter.event_count,
        "events": [
            {"offset": offset, "time": time(ms)}
            | ({"type": kind} if kind is not None else {})
            | (bytes_json(value) if value is not None else {})
            | _decoded(value, readable)
            for offset, ms, kind, value in zip(*columns, strict=True)
        ],
    }


def print_letter(
    out: Console, letter: StoredLetter, types: Sequence[str | None], readable: Readable | None = None
) -> None:
    """Print a letter for people: what is known of it, its detail (the traceback), its kept events."""
    state = f"{letter.state} by batch {letter.resolved_batch}" if letter.resolved_batch else letter.state
    print_fields(
        out,
        [
            ("letter", f"{letter.dead_letter_id}: {letter.reason}, revision {letter.revision}"),
            ("state", f"{state}, since {letter.state_changed_at:%F %T} UTC"),
            ("session key", "none" if letter.session_key is None else letter.session_key),
            ("input", f"{letter.topic}/{letter.partition} (topic id {letter.topic_id})"),
            ("offsets", f"{letter.first_offset} to {letter.last_offset}, closed at {letter.closing_offset}"),
            ("events", f"{len(letter.event_offsets)} kept of {letter.event_count}"),
            (
                "written",
                f"{letter.created_at:%F %T} UTC with batch {letter.batch_id}, generation {letter.generation}",
            ),
        ],
    )
    out.print()
    out.print(letter.detail.rstrip())
    out.print()
    events = Table(["offset", "time", "type"])
    for event in letter_json(letter, types, readable)["events"]:
        plain = event.get("text", f"hex {event['hex']}" if "hex" in event else "no value")
        value = event.get("decoded", plain)
        events.add(str(event["offset"]), event["time"], event.get("type"), block=value)
    events.print(out)


def outcome_json(outcome: "RetryOutcome", *, dry_run: bool) -> dict[str, Any]:
    """Return what a retry did."""
    return {
        "dry_run": dry_run,
        "batches": outcome.batches,
        "retried": [
            {"id": letter.dead_letter_id, "output_events": one.session.outputs if letter is one.letter else 0}
            for one in outcome.retried
            for letter in one.letters
        ],
        "output_events": outcome.output_events,
        "also_resolved": outcome.also_resolved,
        "refused": [{"id": one.dead_letter_id, "because": one.because} for one in outcome.refused],
        "failed": [
            {"id": one.dead_letter_id, "error": one.error, "traceback": one.traceback}
            for one in outcome.failed
        ],
    }


def outcome_lines(outcome: "RetryOutcome", *, dry_run: bool) -> list[str]:
    """Return what a retry did, for people; letters that are refused or fail for one reason are grouped."""
    which = "that would be retried" if dry_run else "retried"
    lines = [
        f"letters {which}: {sum(len(one.letters) for one in outcome.retried)}, output events: {outcome.output_events}"
    ]
    if outcome.batches:
        lines[0] += (
            f", batches {outcome.batches[0]} to {outcome.batches[-1]}"
            if len(outcome.batches) > 1
            else (f", batch {outcome.batches[0]}")
        )
    if outcome.also_resolved:
        lines.append(f"older letters of the same events, also resolved: {outcome.also_resolved}")
    by_reason: dict[str, list[int]] = {}
    for one in outcome.refused:
        by_reason.setdefault(one.because, []).append(one.dead_letter_id)
    lines += [f"refused {_ids(ids)}: {because}" for because, ids in by_reason.items()]
    alike: dict[tuple[str, str], list[int]] = {}
    for failure in outcome.failed:
        alike.setdefault((failure.error, failure.traceback), []).append(failure.dead_letter_id)
    for (error, trace), ids in alike.items():
        # An exception may quote events: their line ends must not begin lines of this report.
        lines += [
            f"failed again {_ids(ids)}: {printable(error)}",
            indent(trace.rstrip(), "  ", lambda _: True),
        ]
    return lines


def time(epoch_ms: int) -> str:
    """Return an event's time; the bare number if no date can represent it."""
    try:
        return utc(epoch_ms).isoformat(timespec="milliseconds")
    except OverflowError:
        return str(epoch_ms)


def _decoded(value: bytes | None, readable: Readable | None) -> dict[str, str]:
    text = None if value is None or readable is None else readable(value)
    return {} if text is None else {"decoded": text}


def _last_line(text: str) -> str:
    return text.rstrip().rpartition("\n")[2]


def _ids(ids: Sequence[int]) -> str:
    shown = ", ".join(map(str, ids[:10]))
    return shown if len(ids) <= 10 else f"{shown} and {len(ids) - 10} more"
