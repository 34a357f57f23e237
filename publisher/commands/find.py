"""`publisher find`."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from publisher.commands.common import database
from publisher.lookup.outputs import Identity, Output, found_in_kafka, looked_for, outputs_of_key
from publisher.lookup.records import Copy
from publisher.outbox.erased import ErasedSession, erased_of_key
from service.commands.options import Config, Json
from service.commands.output import console, print_json
from service.commands.tables import Table
from service.settings import load_settings


def find(
    session_key: Annotated[
        str, typer.Argument(metavar="SESSION_KEY", help="Key of the session.", show_default=False)
    ],
    topic: Annotated[str | None, typer.Option("--topic", help="Only the outputs for this topic.")] = None,
    scan: Annotated[
        bool,
        typer.Option(
            "--scan",
            help="Read the topics from end to end: also finds replayed copies, and outputs whose delivery is not kept any more.",
        ),
    ] = False,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Show each output of a session key, its state, and the partitions and offsets at which Kafka has it. Reads only.

    Without --scan Kafka is read only within the offsets that were recorded of the output's delivery. Exits with 1 where the outbox has no
    output of this key, or Kafka lacks a delivered one that was looked for. Of what was erased, text says when; --json leaves it out.
    """
    settings = load_settings(config)
    with database(settings, "find") as connection:
        outputs = outputs_of_key(connection, session_key, topic)
        erased = erased_of_key(connection, session_key)
    found = found_in_kafka(settings.kafka, outputs, scan=scan)
    if as_json:
        print_json([output_as_json(output, found.get(output.identity, [])) for output in outputs])
    else:
        _print(session_key, outputs, erased, found, scan=scan)
    lost = [output for output in outputs if looked_for(output, scan=scan) and output.identity not in found]
    raise typer.Exit(1 if lost or not outputs else 0)


def output_as_json(output: Output, found: Sequence[Copy]) -> dict[str, Any]:
    """Return an output with its records for machines."""
    return output._asdict() | {"copies": [copy._asdict() for copy in found]}


def _print(
    session_key: str,
    outputs: Sequence[Output],
    erased: Sequence[ErasedSession],
    found: Mapping[Identity, list[Copy]],
    *,
    scan: bool,
) -> None:
    out = console()
    for each in erased:
        out.print(str(each))
    if not outputs and erased:
        return
    if not outputs:
        out.print(
            f"the outbox has no output of session key {session_key!r}: `spark-job dead-letters list --key` shows its dead letters"
        )
        return
    print_outputs(outputs, found, scan=scan)


def print_outputs(
    outputs: Sequence[Output], found: Mapping[Identity, list[Copy]], *, scan: bool = False
) -> None:
    """Print a table of outputs, each with its places in Kafka."""
    table = Table(["batch", "rev.", "state", "outbox-id", "topic"])
    for output in outputs:
        places = [place(copy) for copy in found.get(output.identity, [])]
        if not places and output.state == "delivered":
            places = [
                "not in Kafka (any more)"
                if looked_for(output, scan=scan)
                else "offsets are not recorded: --scan looks"
            ]
        table.add(
            *(str(output.batch_id), str(output.revision), output.state, output.outbox_id, output.topic),
            note="\n".join(places),
        )
    table.print(console())


def place(copy: Copy) -> str:
    """Return where a record is, in words."""
    replayed = "" if copy.replay is None else f", replay {copy.replay}"
    revision = f", revision {copy.revision}" if copy.revision else ""
    return f"{copy.topic} partition {copy.partition} offset {copy.offset}{revision}{replayed}"
