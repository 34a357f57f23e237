"""`publisher parked`: lists, shows, requeues and discards parked rows."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, LiteralString

import psycopg
import typer
from psycopg.rows import dict_row

from db.statements import queries
from publisher.commands.common import database
from publisher.commands.rows.park import park
from publisher.outbox.ledger import newest_batch
from publisher.outbox.parked import (
    Choice,
    Requeued,
    count_chosen,
    discard,
    explain_not_parked,
    requeue,
)
from publisher.protocol.records import RowKey
from service.commands.confirm import confirm
from service.commands.options import Config, DryRun, Json, Limit, Yes
from service.commands.output import console, print_json
from service.commands.progress import progress_bar
from service.commands.tables import Table, print_fields
from service.errors import OutboxError, UnavailableError
from service.lifecycle import fault_points
from service.printable import printable
from service.settings import load_settings

_PARKED = queries("publisher", "parked")

app = typer.Typer(
    no_args_is_help=True,
    help="List, show, requeue or discard rows that Kafka refuses or whose topic does not exist.",
)

_COUNT_LIMIT = 1_000_000
_REASONS = ("too_large", "invalid", "topic_missing")

Rows = Annotated[
    list[str] | None,
    typer.Argument(metavar="[BATCH/SESSION_KEY]...", help="Rows, as `list` names them.", show_default=False),
]
Reasons = Annotated[
    list[str] | None,
    typer.Option("--reason", help=f"Rows parked for this reason; may be repeated. {', '.join(_REASONS)}."),
]
Every = Annotated[bool, typer.Option("--all", help="Every parked row.")]

app.command()(park)


class RowError(OutboxError):
    """The command names no rows, or names rows in a way that it does not accept."""

    exit_code = 2


@app.command("list")
def parked_list(
    config: Config = None,
    as_json: Json = False,
    all_states: Annotated[bool, typer.Option("--all", help="Also what was requeued or discarded.")] = False,
    limit: Limit = 1_000,
) -> None:
    """List parked rows, oldest first."""
    with database(load_settings(config), "parked list") as connection:
        rows = _rows(connection, _PARKED["list"], all_states=all_states, rows=limit)
        counts = dict(connection.execute(_PARKED["counts"], {"count_limit": _COUNT_LIMIT}).fetchall())
    if as_json:
        print_json(rows)
        return
    table = Table(["lane", "reason", "state", "parked", "row"])
    for row in rows:
        state = row["state"] + (f" into {row['requeued_batch']}" if row["requeued_batch"] else "")
        table.add(
            f"{row['epoch']}/{row['lane']}",
            row["reason"],
            state,
            row["created_at"],
            str(RowKey(row["batch_id"], row["session_key"])),
            note=row["detail"],
        )
    table.print(console())
    total = sum(counts.values()) if all_states else counts.get("parked", 0)
    if total > len(rows):
        console().print(f"{total - len(rows):,} more: raise --limit")


@app.command()
def show(
    row: Annotated[str, typer.Argument(metavar="BATCH/SESSION_KEY", help="The row, as `list` names it.")],
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Show a parked row: reason, time, and each of its outputs (values as hex where they are not UTF-8)."""
    name = _parsed([row])[0]
    with database(load_settings(config), "parked show") as connection:
        found = _rows(connection, _PARKED["row"], batch_id=name.batch_id, session_key=name.session_key)
        events = _rows(connection, _PARKED["events"], batch_id=name.batch_id, session_key=name.session_key)
    if not found:
        raise RowError(f"row {name} was never parked: `publisher parked list --all` lists what was")
    for event in events:
        event["key"], event["value_bytes"] = _text(event["key"]), len(event["value"] or b"")
        event["value"] = _text(event["value"])
    if as_json:
        print_json(found[0] | {"outputs": events})
        return
    out = console()
    print_fields(out, ((name.replace("_", " "), _cell(value)) for name, value in found[0].items()))
    for event in events:
        out.print()
        value = "tombstone" if event["value"] is None else event.pop("value")
        print_fields(out, ((name.replace("_", " "), _cell(field)) for name, field in event.items()))
        out.print(value)


@app.command("requeue")
def requeue_rows(
    rows: Rows = None,
    config: Config = None,
    reason: Reasons = None,
    every: Every = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Send parked rows again, exactly once, in new batches of the ledger.

    Remove the cause first: a row that is refused again is parked again, under its new batch. After a kill, run the command again. The
    order within a session key is not promised for requeued rows.
    Exits with 1 when a row that was named is not parked or no longer there; the others are requeued all the same.
    """
    settings = load_settings(config)
    fault_points.arm(settings.testing.fault_file)
    with database(settings, "parked requeue") as connection:
        choice, refused = _chosen(connection, rows, reason, every)
        count, keys = count_chosen(connection, choice)
        if dry_run:
            _report(as_json, {"would_requeue": count, "session_keys": keys}, refused)
            return
        _confirm(count, yes, f"{count:,} rows of {keys:,} session keys are to be sent again")
        result = _requeue(connection, choice, count)
    refused |= {
        str(row): "outbox.session_output does not hold it any more; `publisher parked discard` gives it up"
        for row in result.missing
    }
    _report(as_json, {"requeued": result.rows, "batches": result.batches}, refused)


@app.command("discard")
def discard_rows(
    rows: Rows = None,
    config: Config = None,
    reason: Reasons = None,
    every: Every = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Discard parked rows: they are kept until retention drops them, but cannot be requeued any more.

    Exits with 1 when a row that was named is not parked; the others are discarded all the same.
    """
    with database(load_settings(config), "parked discard") as connection:
        choice, refused = _chosen(connection, rows, reason, every)
        count, keys = count_chosen(connection, choice)
        if dry_run:
            _report(as_json, {"would_discard": count, "session_keys": keys}, refused)
            return
        _confirm(count, yes, f"{count:,} rows of {keys:,} session keys will never be sent")
        count = discard(connection, choice)
    _report(as_json, {"discarded": count}, refused)


def _chosen(
    connection: psycopg.Connection[Any], rows: list[str] | None, reasons: list[str] | None, every: bool
) -> tuple[Choice, dict[str, str]]:
    """Return the chosen rows, and {named row: why it is left out}. Raises RowError."""
    if sum((bool(rows), bool(reasons), every)) != 1:
        raise RowError("name rows, or say --reason or --all: one of the three")
    for reason in reasons or ():
        if reason not in _REASONS:
            raise RowError(f"--reason {reason!r} is none of {', '.join(_REASONS)}")
    names = _parsed(rows) if rows else None
    refused = {
        str(name): refusal for name in names or () if (refusal := explain_not_parked(connection, name))
    }
    return Choice(newest_batch(connection), names, reasons), refused


def _confirm(count: int, yes: bool, consequence: str) -> None:
    if count and not yes:
        console().print(consequence)
        confirm(yes, "Continue?", "this cannot be undone")


def _rows(
    connection: psycopg.Connection[Any], query: LiteralString, **parameters: object
) -> list[dict[str, Any]]:
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(query, parameters, prepare=False).fetchall()


def _parsed(rows: Sequence[str]) -> list[RowKey]:
    try:
        return [RowKey.parse(row) for row in rows]
    except ValueError as error:
        raise RowError(str(error)) from error


def _requeue(connection: psycopg.Connection[Any], choice: Choice, count: int) -> Requeued:
    with progress_bar(quiet=count < 1_000) as bar:
        task = bar.add_task("requeueing", total=count)
        try:
            return requeue(connection, choice, lambda rows: bar.advance(task, rows))
        except psycopg.errors.LockNotAvailable as error:
            raise UnavailableError(
                "the job has held the writer lock for longer than [postgres] lock_timeout_ms. Rows that were requeued stay "
                "requeued; run the command again for the rest"
            ) from error


def _report(as_json: bool, counts: dict[str, Any], refused: dict[str, str]) -> None:
    """Print what was done. Exits with 1 if rows were refused."""
    if as_json:
        print_json(counts | {"refused": refused})
    else:
        out = console()
        shown = (
            f"{name.replace('_', ' ')}: {_shown(value)}" for name, value in counts.items() if value != []
        )
        out.print(", ".join(shown))
        for row, reason in refused.items():
            out.print(f"left out {printable(row)}: {reason}")
    if refused:
        raise typer.Exit(1)


def _shown(value: object) -> str:
    if isinstance(value, list):
        return str(value[0]) if len(value) == 1 else f"{value[0]} to {value[-1]} ({len(value)})"
    return f"{value:,}"


def _cell(value: object) -> str | None:
    """Return a value for people: ids and sizes without separators between their digits, times with milliseconds."""
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="milliseconds")
    return None if value is None else str(value)


def _text(value: bytes | None) -> str | None:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.hex()
