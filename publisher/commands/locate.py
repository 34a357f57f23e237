"""`publisher locate`."""

from typing import Annotated, Any

import psycopg
import typer
from confluent_kafka import KafkaException

from publisher.commands.common import database
from publisher.commands.find import output_as_json, print_outputs
from publisher.lookup.outputs import Output, found_in_kafka, looked_for, outputs_of_id
from publisher.lookup.positions import FoundThere, OutboxId, Position, find_there, parse_place
from publisher.lookup.records import RecordThere, record_at
from publisher.outbox.erased import erased_at_end
from service.commands.options import Config, Json
from service.commands.output import console, print_json
from service.commands.tables import Table
from service.errors import SettingsError, UnavailableError
from service.settings import Settings, load_settings


def locate(
    place: Annotated[
        str,
        typer.Argument(
            metavar="OUTBOX_ID|TOPIC/PARTITION/OFFSET",
            help="An output's outbox-id, or a record's place in Kafka.",
            show_default=False,
        ),
    ],
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Show where in Kafka one output is, or of which session a record in Kafka is. Reads only.

    OUTBOX_ID (four parts): its session, batch and delivery, and topic, partition and offset of its record. Kafka is read only within the
    offsets that were recorded of the delivery.

    TOPIC/PARTITION/OFFSET: the record there. One that a publisher sent names its output; at a position of the input, the sessions and dead
    letters that have the event.

    Exits with 1 where nothing is found.
    """
    settings = load_settings(config)
    try:
        wanted = parse_place(place)
    except ValueError as error:
        raise SettingsError(str(error)) from error
    with database(settings, "locate") as connection:
        if isinstance(wanted, OutboxId):
            found = _output(settings, connection, wanted, as_json=as_json)
        else:
            found = _record(settings, connection, wanted, as_json=as_json)
    raise typer.Exit(0 if found else 1)


def _output(
    settings: Settings, connection: psycopg.Connection[Any], wanted: OutboxId, *, as_json: bool
) -> bool:
    outputs = outputs_of_id(connection, wanted)
    copies = found_in_kafka(settings.kafka, outputs)
    erased = erased_at_end(connection, *wanted.end) if not outputs else []
    if as_json:
        print_json([output_as_json(each, copies.get(each.identity, [])) for each in outputs])
    elif erased:
        for each in erased:
            console().print(str(each))
    elif not outputs:
        console().print(f"the outbox has no output {wanted}: it was never made, or retention has dropped it")
    else:
        _print_deliveries(outputs)
        print_outputs(outputs, copies)
    lost = [each for each in outputs if looked_for(each, scan=False) and each.identity not in copies]
    return bool(outputs) and not lost


def _print_deliveries(outputs: list[Output]) -> None:
    for each in outputs:
        by = "not sent by a delivery that is recorded"
        if each.delivery_seq is not None:
            at = "" if each.delivered_at is None else f" at {each.delivered_at:%F %T} UTC"
            by = f"sent by delivery {each.delivery_seq} of epoch {each.epoch}, lane {each.lane}{at}"
        console().print(f"session key {each.session_key}, batch {each.batch_id}: {by}")


def _record(
    settings: Settings, connection: psycopg.Connection[Any], wanted: Position, *, as_json: bool
) -> bool:
    try:
        record = record_at(settings.kafka, *wanted)
        unread = ""
    except (KafkaException, UnavailableError) as error:
        record = None
        unread = error.args[0].str() if isinstance(error, KafkaException) else str(error)
    outputs: list[Output] = []
    if record is not None and record.outbox_id is not None:
        outputs = _of_record(connection, record)
    there = find_there(connection, wanted)
    erased = [
        each
        for place in [
            *([] if record is None else _ends(record)),
            *(wanted._replace(topic=t) for t in there.topic_ids),
        ]
        for each in erased_at_end(connection, *place)
    ]
    # One that a publisher sent is no input of this job, unless somebody feeds an output topic to it.
    if as_json:
        print_json(
            {
                "record": None if record is None else record._asdict(),
                "unread": unread or None,
                "outputs": [each._asdict() for each in outputs],
                "sessions": [each._asdict() for each in there.candidates],
                "letters": [each._asdict() for each in there.letters],
            }
        )
    else:
        for each in erased:
            console().print(str(each))
        _print_record(wanted, record, unread, outputs, there, is_erased=bool(erased))
    return bool(outputs or there.candidates or there.letters)


def _of_record(connection: psycopg.Connection[Any], record: RecordThere) -> list[Output]:
    wanted = _output_of(record)
    if wanted is None:
        return []
    return [each for each in outputs_of_id(connection, wanted) if each.revision == record.revision]


def _ends(record: RecordThere) -> list[Position]:
    """Return where the session of a record that a publisher sent ended."""
    wanted = _output_of(record)
    return [] if wanted is None else [wanted.end]


def _output_of(record: RecordThere) -> OutboxId | None:
    try:
        wanted = parse_place(record.outbox_id or "")
    except ValueError:
        return None
    return wanted if isinstance(wanted, OutboxId) else None


def _print_record(
    wanted: Position,
    record: RecordThere | None,
    unread: str,
    outputs: list[Output],
    there: FoundThere,
    *,
    is_erased: bool,
) -> None:
    out = console()
    if unread:
        out.print(f"Kafka was not read: {unread}")
    elif record is None:
        out.print(
            f"Kafka has no committed record at {wanted}: an aborted one, a commit marker, or it expired"
        )
    elif record.outbox_id is not None:
        replay = "" if record.replay is None else f", sent by replay {record.replay}"
        out.print(f"outbox-id {record.outbox_id}, revision {record.revision}{replay}")
        if not outputs and not is_erased:
            out.print(
                "the outbox has no such output: another outbox' publisher sent it, or retention has dropped it"
            )
        _print_deliveries(outputs)
    if there.candidates or there.letters:
        _print_there(there)
    elif not there.topic_ids and not outputs and not is_erased:
        out.print(f"topic {wanted.topic!r} is no input topic of this outbox")
    elif not outputs and not is_erased:
        out.print(
            "no session and no dead letter has that event: it was not read yet, or its session is still open"
        )


def _print_there(there: FoundThere) -> None:
    table = Table(["session key", "batch", "from offset", "to offset", "event"])
    for each in there.candidates:
        event = "its first or last" if each.exact else "perhaps: sessions overlap there"
        offsets = (str(each.start_offset), str(each.end_offset))
        table.add(each.session_key, str(each.batch_id), *offsets, event)
    for letter in there.letters:
        event = f"dead letter {letter.dead_letter_id}: {letter.reason}, {letter.state}"
        table.add(letter.session_key, str(letter.batch_id), None, None, event)
    table.print(console())
