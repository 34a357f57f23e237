"""The command line: `publisher run`, `publisher status`, `publisher parked list`."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import orjson
import psycopg
import typer
from rich.console import Console
from rich.table import Table

from db import fault_points, logs
from db.command import run_command
from db.connection import connect
from db.migrate import require_current
from db.settings import Settings, load_settings
from db.statements import statement
from publisher.identity import OutboxIdentity
from publisher.relay import Relay
from publisher.shared import Epoch
from publisher.shutdown import stop_on_signals
from publisher.status import COUNT_LIMIT, Status, read_status

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Deliver the outbox to Kafka, exactly once.",
)
parked_app = typer.Typer(no_args_is_help=True, help="Rows that Kafka refuses for themselves.")
app.add_typer(parked_app, name="parked")

Config = Annotated[
    Path | None, typer.Option("--config", help="Settings file; default OUTBOX_CONFIG, else outbox.toml.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")]


@app.command()
def run(config: Config = None) -> None:
    """Deliver until SIGTERM or SIGINT, which end the transaction in flight first; a second one forces the end.

    Exit codes: 0 stopped as asked, 5 no lane can go on or the outbox belongs elsewhere, 6 Postgres or Kafka did not
    answer at the start, 2 wrong settings, 3 wrong schema.
    """
    settings = load_settings(config)
    logs.configure(settings.log)
    fault_points.arm(settings.testing.fault_file)
    stop = threading.Event()
    with stop_on_signals(stop):
        Relay(settings, stop, lambda identity, epoch: _print_start(settings, identity, epoch)).run()


@app.command()
def status(config: Config = None, as_json: Json = False) -> None:
    """Show how far every lane is. Exits 1 when a lane is stopped, or has undelivered rows and nobody holds it."""
    with _database(load_settings(config)) as connection:
        found = read_status(connection)
    if as_json:
        _print_json(found.as_json())
    else:
        _print_status(found)
    if not found.healthy:
        raise typer.Exit(1)


@parked_app.command("list")
def parked_list(
    config: Config = None,
    as_json: Json = False,
    all_states: Annotated[bool, typer.Option("--all", help="Also what was requeued or discarded.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="Rows to show at the most.")] = 1_000,
) -> None:
    """List parked rows, oldest first."""
    with _database(load_settings(config)) as connection:
        cursor = connection.execute(
            statement("publisher", "parked_list"), {"all_states": all_states, "rows": limit}
        )
        names = [column.name for column in cursor.description or ()]
        rows = cursor.fetchall()
    if as_json:
        _print_json([dict(zip(names, row, strict=True)) for row in rows])
        return
    table = Table(*names)
    for row in rows:
        table.add_row(*("" if value is None else str(value) for value in row))
    _console().print(table)


@contextmanager
def _database(settings: Settings) -> Iterator[psycopg.Connection[Any]]:
    with connect(settings.postgres, "publisher status", autocommit=True) as connection:
        require_current(connection)
        yield connection


def _print_start(settings: Settings, identity: OutboxIdentity, epoch: Epoch) -> None:
    # Counts nothing: a large backlog would keep the lanes from starting.
    _console().print(
        f"outbox {identity.outbox_uuid} -> Kafka cluster {identity.cluster_id} at {settings.kafka.bootstrap_servers}\n"
        f"epoch {epoch.epoch} from batch {epoch.from_batch}, {epoch.lanes} lanes; `publisher status` shows how far they are"
    )


def _print_status(found: Status) -> None:
    console = _console()
    console.print(
        f"outbox {found.identity.outbox_uuid} -> Kafka cluster {found.identity.cluster_id or 'not bound yet'}"
    )
    _print_lanes(console, found)
    parked = ", ".join(f"{count} {state}" for state, count in found.parked.items())
    console.print(f"parked rows: {parked or 'none'}")
    for lane in found.lanes:
        if lane.stopped_reason is not None:
            console.print(f"lane {lane.lane} stopped: {lane.stopped_reason}", style="red")
        if lane.abandoned:
            console.print(
                f"lane {lane.lane} of epoch {lane.epoch}: {lane.lag_rows} rows wait and nobody delivers them. Start "
                "`publisher run`",
                style="red",
            )


def _print_lanes(console: Console, found: Status) -> None:
    table = Table(
        "epoch", "lane", "holder", "cursor", "seq", "sessions", "events", "lag batches", "lag rows", "oldest"
    )
    for lane in found.lanes:
        cursor = str(lane.cursor_batch) + ("" if lane.cursor_key is None else f" at {lane.cursor_key}")
        rows = f"{'≥ ' if lane.lag_rows >= COUNT_LIMIT else ''}{lane.lag_rows}"
        age = "" if lane.oldest_undelivered_s is None else f"{lane.oldest_undelivered_s:.1f} s"
        table.add_row(
            *(str(value) for value in (lane.epoch, lane.lane, lane.holder or "nobody", cursor, lane.seq)),
            *(str(value) for value in (lane.sessions, lane.events, lane.lag_batches, rows, age)),
        )
    console.print(table)


def _print_json(value: object) -> None:
    sys.stdout.write(orjson.dumps(value, default=str).decode() + "\n")


def _console() -> Console:
    # Wide enough that a table read by a machine or a log keeps its columns.
    return Console() if sys.stdout.isatty() else Console(width=160)


def main() -> None:
    """Run the command line."""
    run_command(app, "publisher")
