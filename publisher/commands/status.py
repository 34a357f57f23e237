"""`publisher status`: prints the progress of every lane."""

import typer
from rich.console import Console
from rich.text import Text

from publisher.commands.common import database
from publisher.status.publisher_status import COUNT_LIMIT, LaneStatus, PublisherStatus, read_status
from service.commands.options import Config, Json
from service.commands.output import console, print_json
from service.commands.tables import Table
from service.settings import load_settings


def status(config: Config = None, as_json: Json = False) -> None:
    """Show the progress of every lane. Exits with 1 if a lane is stopped, or has undelivered rows and no holder."""
    with database(load_settings(config), "status") as connection:
        found = read_status(connection)
    if as_json:
        print_json(found.as_json())
    else:
        print_status(console(), found)
    if not found.healthy:
        raise typer.Exit(1)


def print_status(out: Console, found: PublisherStatus) -> None:
    """Print the status for people."""
    out.print(f"outbox {found.identity.outbox_uuid}")
    out.print(f"Kafka cluster {found.identity.cluster_id or 'not bound yet'}")
    out.print()
    _lanes(found).print(out)
    out.print()
    _print_processes(out, found)
    parked = ", ".join(f"{count} {state}" for state, count in found.parked.items())
    out.print(f"parked rows: {parked or 'none'}")
    reasons = ", ".join(f"{count} {reason}" for reason, count in found.parked_rows.items() if count)
    if reasons:
        out.print(f"parked now: {reasons}", style="yellow")
    for topic, since in found.parked_topics.items():
        out.print(
            f"topic {topic!r}: while it does not exist, its rows are parked by a decision of {since:%F %T} UTC",
            style="yellow",
        )
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
        if lane.is_stopped:
            out.print(f"lane {lane.lane} stopped: {lane.stopped_reason}", style="red")
        if lane.is_retrying:
            out.print(f"lane {lane.lane} {lane.stopped_reason}", style="yellow")
        if lane.abandoned:
            out.print(
                f"lane {lane.lane} of epoch {lane.epoch}: {lane.lag_rows} rows wait and nobody delivers them. Start "
                "`publisher run`",
                style="red",
            )


def _lanes(found: PublisherStatus) -> Table:
    table = Table(
        ["epoch/lane", "delivered", "sessions", "events", "lag batches", "lag rows", "oldest", "state"]
    )
    for lane in found.lanes:
        rows = f"{'≥ ' if lane.lag_rows >= COUNT_LIMIT else ''}{lane.lag_rows:,}"
        age = None if lane.oldest_undelivered_s is None else f"{lane.oldest_undelivered_s:.1f} s"
        table.add(
            f"{lane.epoch}/{lane.lane}",
            _delivered(lane),
            lane.sessions,
            lane.events,
            lane.lag_batches,
            rows,
            age,
            _state(lane),
            note="" if lane.cursor_key is None else f"up to session key {lane.cursor_key}",
        )
    return table


def _delivered(lane: LaneStatus) -> str:
    return f"batch {lane.cursor_batch}" if lane.cursor_key is None else f"in batch {lane.cursor_batch}"


def _state(lane: LaneStatus) -> Text:
    if lane.is_stopped:
        return Text("stopped", "red")
    if lane.abandoned:
        return Text("not held", "red")
    if lane.is_retrying:
        return Text("retrying", "yellow")
    return Text("waiting" if lane.waiting else "not held" if lane.holder is None else "held")


def _print_processes(out: Console, found: PublisherStatus) -> None:
    if not found.processes:
        out.print("publisher processes: none")
    for process in found.processes:
        name = f"{process.host}:{process.pid}"
        lanes = " ".join(str(lane.lane) for lane in found.lanes if lane.holder == name)
        out.print(f"publisher process {name}: {f'lanes {lanes}' if lanes else 'no lane'}")
