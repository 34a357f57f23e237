"""`spark-job savepoint`: name positions of the ledger, see which can be restored, go back to one."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from db import operations
from db.connection import Connection
from service.commands.options import Config, DryRun, Json, Yes
from service.commands.output import console, document, print_json
from service.commands.tables import Table
from service.commands.times import SINCE, parse_moment, shown_time
from service.errors import SettingsError, UnavailableError
from service.private_file import write_private
from service.settings import Settings, load_settings
from spark_job.commands.common import Timeout, errors, outbox, outbox_uuid, writer_lock
from spark_job.input.offsets import Offsets
from spark_job.ledger import savepoints
from spark_job.ledger.savepoints import Savepoint

if TYPE_CHECKING:
    from spark_job.recovery.savepoint_restore import Restorability

app = typer.Typer(
    no_args_is_help=True,
    help="Named positions to go back to. Nothing is copied: one lives as long as Kafka keeps its events.",
)

Name = Annotated[str, typer.Argument(help="The savepoint's name.", show_default=False)]


class Policy(StrEnum):
    """What a restore does with outputs that are in the outbox already."""

    skip = "skip"
    reissue = "reissue"


@app.command()
def create(
    name: Name,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            help=f"Name the newest position instead that has read no record of this time or later: {SINCE}.",
            show_default=False,
        ),
    ] = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Name the position after the newest batch, or an earlier one. A running job continues: only its next commit may wait for a moment."""
    savepoints.check_name(name)
    settings = load_settings(config)
    moment = None if at is None else parse_moment(at, "--at").here()
    before, late, topic_ids = (None, [], {}) if moment is None else _before(settings, moment)
    with outbox(settings, "savepoint") as connection, writer_lock(connection):
        made = savepoints.create(connection, name, before)
        if replaced := [topic for id_, topic in made.topics.items() if topic_ids.get(topic, id_) != id_]:
            raise SettingsError(
                f"input topic {', '.join(map(repr, replaced))} was deleted and created again: Kafka no longer has times for "
                "the offsets that the outbox has read. Nothing was written. Without --at, the savepoint is the current position"
            )
        asked = {"name": name} if moment is None else {"name": name, "at": shown_time(moment)}
        operations.record(connection, "spark-job savepoint create", asked, {"place": made.place})
    if as_json:
        print_json(made.to_json() | ({} if moment is None else {"at": shown_time(moment)}))
        return
    console().print(f"savepoint {made.name!r}: {made.place}")
    if moment is not None:
        console().print(
            f"It has read nothing of {shown_time(moment)} or later, and ends at {', '.join(made.end.named(made.topics))}"
        )
        if late:
            console().print(f"Without a record of then or later: {', '.join(late)}")


def _before(settings: Settings, moment: datetime) -> tuple[Offsets, list[str], Mapping[str, str]]:
    """Return the first offsets of a time, the partitions without a record of then or later, and {topic: topic id} of the input."""
    from spark_job.input.topics import kafka_input
    from spark_job.recovery.starting_offsets import at_time

    with kafka_input(settings) as kafka:
        topics = kafka.describe()
        found, late = at_time(kafka, topics, moment)
    return found, [f"{topics.names[where.topic_id]}/{where.partition}" for where in late], topics.ids


@app.command("list")
def list_savepoints(config: Config = None, as_json: Json = False) -> None:
    """List the savepoints, oldest first, and whether each can be restored, with which flag."""
    settings = load_settings(config)
    with outbox(settings, "savepoint") as connection:
        known = savepoints.all(connection)
        found = list(zip(known, _restorability(connection, settings, known), strict=True))
    if as_json:
        rows: list[dict[str, Any]] = [savepoint.to_json() | now.to_json() for savepoint, now in found]
        print_json(rows)
        return
    table = Table(["created (UTC)", "generation", "batch", "events since", "state", "name"])
    for savepoint, now in found:
        notes = [f"reads from {', '.join(savepoint.safe.named(savepoint.topics))}", *now.reasons]
        if now.reasons and now.state != "unknown":
            notes.append(f"restore it with {' '.join(now.flags)}" if now.flags else "no flag restores it")
        table.add(
            savepoint.created_at,
            str(savepoint.generation),
            str(savepoint.batch_id or "start"),
            now.events,
            now.state,
            savepoint.name,
            note="\n".join(notes),
        )
    table.print(console())


@app.command()
def delete(name: Name, config: Config = None, as_json: Json = False) -> None:
    """Delete a savepoint. The name is free again; positions and outputs are not touched."""
    with outbox(load_settings(config), "savepoint") as connection:
        savepoints.delete(connection, name)
    if as_json:
        print_json({"deleted": name})
    else:
        console().print(f"savepoint {name!r} deleted")


@app.command()
def export(
    name: Name,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File to write; standard output without it.", show_default=False),
    ] = None,
    config: Config = None,
) -> None:
    """Write a savepoint as a small JSON file, from which `spark-job fork` begins another outbox."""
    from spark_job.savepoints.exported import ExportedSavepoint

    with outbox(load_settings(config), "savepoint") as connection:
        uuid = outbox_uuid(connection)
        exported = ExportedSavepoint.of(savepoints.get(connection, name), uuid)
    text = document(exported.to_json())
    if output is None:
        print(text, end="")
        return
    write_private(output, text, "--output")
    errors.print(
        f"savepoint {name!r} written to {output}; `spark-job fork {output}` begins another outbox with it"
    )


@app.command()
def restore(
    name: Annotated[
        str | None,
        typer.Argument(help="The savepoint's name, for --policy reissue.", show_default=False),
    ] = None,
    policy: Annotated[
        Policy,
        typer.Option(
            "--policy",
            help="skip: continue at the greatest position of all time, without a name; nothing is sent twice, and a reissue ends early. "
            "reissue: go back to the savepoint; all later sessions are computed and sent again with a higher outbox-revision.",
        ),
    ] = Policy.skip,
    accept_data_loss: Annotated[
        bool,
        typer.Option(
            "--accept-data-loss",
            help="Restore although Kafka has deleted events that the savepoint needs.",
            envvar="OUTBOX_ACCEPT_DATA_LOSS",
        ),
    ] = False,
    accept_changed_assembly: Annotated[
        bool,
        typer.Option(
            "--accept-changed-assembly",
            help="Restore although the assembly rules differ from the savepoint's: they apply to later events.",
            envvar="OUTBOX_ACCEPT_CHANGED_ASSEMBLY",
        ),
    ] = False,
    config: Config = None,
    timeout: Timeout = 300.0,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Go back to a savepoint, or end a reissue. It first shows what it will do, and asks; with --dry-run it ends there.

    A running job does it between two batches; if none runs, the next start continues from there.
    """
    from spark_job.commands import restore as restoring
    from spark_job.recovery.findings import AcceptedRisks
    from spark_job.recovery.savepoint_restore import Restore

    accepted = AcceptedRisks(data_loss=accept_data_loss, changed_assembly=accept_changed_assembly)
    asked = Restore(name, policy.value, accepted)
    restoring.restore(
        load_settings(config), asked, timeout_s=timeout, dry_run=dry_run, yes=yes, as_json=as_json
    )


def _restorability(
    connection: Connection, settings: Settings, known: list[Savepoint]
) -> "list[Restorability]":
    """Compare each savepoint with Kafka and the settings. If Kafka cannot be read, each savepoint is `unknown`."""
    if not known:
        return []
    from spark_job.input.topics import kafka_input
    from spark_job.recovery.savepoint_restore import Restorability, greatest_position, restorability
    from spark_job.recovery.start import read_input

    read = greatest_position(connection).end
    try:
        with kafka_input(settings) as kafka:
            # Read after the ledger: bounds older than its last commit would look as if Kafka had lost the input's end.
            now = read_input(settings, kafka, kafka.describe())
    except (UnavailableError, SettingsError) as error:
        errors.print(f"Whether they can be restored is unknown: {error}")
        return [Restorability("unknown", [str(error)])] * len(known)
    return [restorability(each, now, read) for each in known]
