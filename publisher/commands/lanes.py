"""`publisher lanes`: shows which process runs which lanes, and changes the number of lanes."""

from typing import Annotated

import typer
from rich.console import Console

from publisher.assignment.lane_count import LaneCountChange, Lanes, change_lanes, read_lanes
from publisher.commands.common import database
from service.commands.confirm import confirm
from service.commands.options import Config, Json, Yes
from service.commands.output import console, print_json
from service.commands.tables import Table
from service.settings import load_settings

app = typer.Typer(
    invoke_without_command=True, help="Show who runs which lanes, or change how many there are."
)


@app.callback()
def show(context: typer.Context, config: Config = None, as_json: Json = False) -> None:
    """Show the epochs (each with its lane count), the living processes and the lanes that each of them holds."""
    if context.invoked_subcommand is not None:
        return
    with database(load_settings(config), "lanes") as connection:
        found = read_lanes(connection)
    if as_json:
        print_json(found.as_json())
    else:
        _print(console(), found)


@app.command("set")
def set_lanes(
    lanes: Annotated[
        int, typer.Argument(min=1, max=1024, metavar="N", help="Number of lanes from the next batch on.")
    ],
    config: Config = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Change the number of lanes from the next batch on, after a confirmation. The job and the publishers keep running.

    Each session key keeps its order: the new lanes start when the old ones have delivered all earlier batches.
    """
    with database(load_settings(config), "lanes set") as connection:
        epochs = read_lanes(connection).epochs
        before = max(epochs).lanes if epochs else lanes
        if before != lanes:
            confirm(
                yes,
                f"Change from {before} to {lanes} lanes?",
                "this changes which lane each session key is in",
            )
        change = change_lanes(connection, lanes)
    if as_json:
        print_json(change.as_json() | {"changed": True} if change else {"lanes": lanes, "changed": False})
    elif change is None:
        console().print(f"there are {lanes} lanes already; nothing was changed")
    else:
        _explain(console(), change)


def _explain(out: Console, change: LaneCountChange) -> None:
    out.print(
        f"epoch {change.epoch}: {change.lanes} lanes from batch {change.from_batch} on, {change.before} before.\n"
        f"The {change.before} old lanes deliver everything up to batch {change.from_batch - 1}; the new ones start when every old "
        "one has finished, so that each session key keeps its order.\n"
        "Running jobs and publishers follow by themselves; `publisher lanes` shows how far they are."
    )


def _print(out: Console, found: Lanes) -> None:
    if not found.epochs:
        out.print("there are no lanes yet: the job makes the first ones when it starts")
    epochs = Table(["epoch", "from batch", "to batch", "lanes", "ended", "state", "since"])
    for epoch in found.epochs:
        to_batch = None if epoch.to_batch is None else str(epoch.to_batch)
        epochs.add(
            *(str(epoch.epoch), str(epoch.from_batch), to_batch, epoch.lanes, epoch.ended),
            *(found.state(epoch), epoch.created_at),
        )
    epochs.print(out)
    out.print()
    processes = Table(["host", "pid", "since", "lanes"])
    for process in found.processes:
        processes.add(
            *(process.host, str(process.pid), process.started_at, _listed(found.held_by(process.process_id))),
            note=f"process {process.process_id}",
        )
    processes.print(out)
    known = {process.process_id for process in found.processes}
    for lane, holder in sorted(found.holders.items()):
        if holder is not None and holder not in known:
            out.print(f"lane {lane} is held by {holder}")
    unheld = sorted(lane for lane, holder in found.holders.items() if holder is None)
    if unheld:
        out.print(f"held by nobody: {_listed(unheld)}")


def _listed(lanes: list[int]) -> str:
    return " ".join(map(str, lanes)) or "none"
