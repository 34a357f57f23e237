"""`publisher status`."""

import typer
from rich.console import Console
from rich.table import Table

from publisher.commands.common import Config, Json, console, database, print_json
from publisher.monitoring.status import COUNT_LIMIT, Status, read_status
from service.settings import load_settings


def status(config: Config = None, as_json: Json = False) -> None:
    """Show how far every lane is. Exits 1 when a lane is stopped, or has undelivered rows and nobody holds it."""
    with database(load_settings(config), "status") as connection:
        found = read_status(connection)
    if as_json:
        print_json(found.as_json())
    else:
        print_status(found)
    if not found.healthy:
        raise typer.Exit(1)


def print_status(found: Status) -> None:
    """Print it for people."""
    out = console()
    out.print(
        f"outbox {found.identity.outbox_uuid} -> Kafka cluster {found.identity.cluster_id or 'not bound yet'}"
    )
    _print_lanes(out, found)
    running = ", ".join(f"{process.host}:{process.pid}" for process in found.processes)
    out.print(f"publisher processes: {running or 'none'}")
    parked = ", ".join(f"{count} {state}" for state, count in found.parked.items())
    out.print(f"parked rows: {parked or 'none'}")
    reasons = ", ".join(f"{count} {reason}" for reason, count in found.parked_rows.items() if count)
    if reasons:
        out.print(f"parked now: {reasons}", style="yellow")
    replays = ", ".join(f"{count} {state}" for state, count in found.replays.items() if count)
    if replays:
        out.print(f"replays: {replays}")
    out.print(f"lanes taken: {found.lanes_taken} times")
    for rate in found.rates:
        out.print(
            f"last {rate.seconds} s: {rate.transactions:,} transactions, {rate.sessions:,} sessions, {rate.events:,} events, "
            f"{rate.events_per_second:,.1f} events/s"
        )
    for lane in found.lanes:
        if lane.stopped_reason is not None:
            out.print(f"lane {lane.lane} stopped: {lane.stopped_reason}", style="red")
        if lane.abandoned:
            out.print(
                f"lane {lane.lane} of epoch {lane.epoch}: {lane.lag_rows} rows wait and nobody delivers them. Start "
                "`publisher run`",
                style="red",
            )


def _print_lanes(out: Console, found: Status) -> None:
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
    out.print(table)
