"""`publisher trace`, and `find` and `locate`, which it replaces."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import psycopg
import typer

from contract.positions import OutboxId, RecordPosition, parse_position
from publisher.commands.common import database
from publisher.outbox.erased import ErasedSession, erased_at_end, erased_of_key
from publisher.trace import printing
from publisher.trace.consumers import Consumptions, consumptions
from publisher.trace.identify import SessionKey, identify
from publisher.trace.input_positions import find_matches
from publisher.trace.outputs import (
    Output,
    OutputKey,
    found_in_kafka,
    must_be_in_kafka,
    outputs_of_id,
    outputs_of_key,
)
from publisher.trace.records import Copy, StoredRecord, record_at
from service.commands.options import Config, Json
from service.commands.output import console, print_json
from service.errors import RefusedError, SettingsError, UnavailableError
from service.settings import Settings, load_settings

_Topic = Annotated[
    str | None, typer.Option("--topic", help="Of a session key: only the outputs for this topic.")
]
_Scan = Annotated[
    bool,
    typer.Option(
        "--scan",
        help="Of a session key: read the topics from end to end, for replayed copies too, and outputs whose delivery is not kept.",
    ),
]
_Consumer = Annotated[
    str | None,
    typer.Option(
        "--consumer",
        metavar="DSN",
        help="Also what became of each output at consumers: the database of `outbox_consumer` (postgresql://…, key=value words, "
        "sqlite:///PATH, or file:///PATH of a file with the DSN).",
        show_default=False,
    ),
]
_Document = dict[str, Any]


def trace(
    what: Annotated[
        str,
        typer.Argument(
            metavar="SESSION_KEY|OUTBOX_ID|TOPIC/PARTITION/OFFSET",
            help="A session key, an output's outbox-id, or a record's position in Kafka.",
            show_default=False,
        ),
    ],
    topic: _Topic = None,
    scan: _Scan = False,
    consumer: _Consumer = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Follow a session key, an outbox-id or a record in Kafka: its outputs, their state, and each one's place in Kafka. Reads only.

    SESSION_KEY: each output of it. Kafka is read only within the offsets that were recorded of the output's delivery, with --scan
    everywhere.

    OUTBOX_ID (four parts): that output, its session, batch and delivery.

    TOPIC/PARTITION/OFFSET: the record there. One that a publisher sent names its output; at a position of the input, the sessions and dead
    letters that have the event.

    A text that the outbox knows as a session key is taken for one. Exits with 1 where nothing is found, or Kafka lacks a delivered output
    that was looked for. For erased sessions, the text says when.
    """
    settings = load_settings(config)
    with database(settings, "trace") as connection:
        wanted = identify(connection, what)
        if wanted is None:
            wanted = what  # no position, so a session key that the outbox does not have
        found = _traced(
            settings, connection, wanted, topic=topic, scan=scan, consumer=consumer, text=not as_json
        )
    if as_json:
        print_json(found.document)
    raise typer.Exit(0 if found.is_whole else 1)


def find(
    session_key: Annotated[
        str, typer.Argument(metavar="SESSION_KEY", help="Key of the session.", show_default=False)
    ],
    topic: _Topic = None,
    scan: _Scan = False,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """`publisher trace SESSION_KEY` by its former name, which the next release does not have.

    --json is the list of outputs alone.
    """
    settings = load_settings(config)
    with database(settings, "find") as connection:
        found = _traced(settings, connection, session_key, topic=topic, scan=scan, text=not as_json)
    if as_json:
        print_json(found.document["outputs"])
    raise typer.Exit(0 if found.is_whole else 1)


def locate(
    position: Annotated[
        str,
        typer.Argument(
            metavar="OUTBOX_ID|TOPIC/PARTITION/OFFSET",
            help="An output's outbox-id, or a record's position in Kafka.",
            show_default=False,
        ),
    ],
    config: Config = None,
    as_json: Json = False,
) -> None:
    """`publisher trace OUTBOX_ID|TOPIC/PARTITION/OFFSET` by its former name, which the next release does not have.

    --json of an outbox-id is the list of outputs alone.
    """
    settings = load_settings(config)
    try:
        wanted = parse_position(position)
    except ValueError as error:
        raise SettingsError(str(error)) from error
    with database(settings, "locate") as connection:
        found = _traced(settings, connection, wanted, text=not as_json)
    if as_json:
        former = {name: value for name, value in found.document.items() if name not in ("meant", "erased")}
        print_json(found.document["outputs"] if isinstance(wanted, OutboxId) else former)
    raise typer.Exit(0 if found.is_whole else 1)


class _Traced:
    """`document`: the result for --json. `is_whole`: something was found, and Kafka has every output that was searched there."""

    def __init__(self, meant: str, erased: Sequence[ErasedSession], is_whole: bool, **more: Any) -> None:
        self.document: _Document = {"meant": meant, **more, "erased": [each._asdict() for each in erased]}
        self.is_whole = is_whole


def _traced(
    settings: Settings,
    connection: psycopg.Connection[Any],
    wanted: SessionKey | OutboxId | RecordPosition,
    *,
    topic: str | None = None,
    scan: bool = False,
    consumer: str | None = None,
    text: bool,
) -> _Traced:
    if isinstance(wanted, OutboxId):
        return _of_id(settings, connection, wanted, consumer, text=text)
    if isinstance(wanted, RecordPosition):
        return _of_record(settings, connection, wanted, consumer, text=text)
    return _of_key(settings, connection, wanted, topic, consumer, scan=scan, text=text)


def _of_key(
    settings: Settings,
    connection: psycopg.Connection[Any],
    key: str,
    topic: str | None,
    consumer: str | None,
    *,
    scan: bool,
    text: bool,
) -> _Traced:
    outputs = outputs_of_key(connection, key, topic)
    consumed = _consumed(consumer, outputs)
    erased = erased_of_key(connection, key)
    copies = found_in_kafka(settings.kafka, outputs, scan=scan)
    if text:
        printing.print_erased(erased)
        if outputs:
            printing.print_outputs(outputs, copies, consumed, scan=scan)
        elif not erased:
            console().print(
                f"the outbox has no output of session key {key!r}: `spark-job dead-letters list --key` shows its dead letters"
            )
    return _outputs("session_key", outputs, copies, consumed, erased, scan=scan)


def _of_id(
    settings: Settings,
    connection: psycopg.Connection[Any],
    wanted: OutboxId,
    consumer: str | None,
    *,
    text: bool,
) -> _Traced:
    outputs = outputs_of_id(connection, wanted)
    consumed = _consumed(consumer, outputs)
    copies = found_in_kafka(settings.kafka, outputs)
    erased = erased_at_end(connection, *wanted.end) if not outputs else []
    if text:
        printing.print_erased(erased)
        if outputs:
            printing.print_deliveries(outputs)
            printing.print_outputs(outputs, copies, consumed)
        elif not erased:
            console().print(
                f"the outbox has no output {wanted}: it was never made, or retention has dropped it"
            )
    return _outputs("outbox_id", outputs, copies, consumed, erased)


def _outputs(
    meant: str,
    outputs: Sequence[Output],
    copies: Mapping[OutputKey, list[Copy]],
    consumed: Consumptions | None,
    erased: Sequence[ErasedSession],
    *,
    scan: bool = False,
) -> _Traced:
    lost = [each for each in outputs if must_be_in_kafka(each, scan=scan) and each.identity not in copies]
    found = [
        each._asdict()
        | {"copies": [copy._asdict() for copy in copies.get(each.identity, [])]}
        | _consumed_json(each, consumed)
        for each in outputs
    ]
    return _Traced(meant, erased, bool(outputs) and not lost, outputs=found)


def _consumed(consumer: str | None, outputs: Sequence[Output]) -> Consumptions | None:
    return None if consumer is None else consumptions(consumer, {each.outbox_id for each in outputs})


def _consumed_json(output: Output, consumed: Consumptions | None) -> _Document:
    if consumed is None:
        return {}
    return {"consumed": [each.as_json() for each in consumed.get(output.outbox_id, [])]}


def _of_record(
    settings: Settings,
    connection: psycopg.Connection[Any],
    wanted: RecordPosition,
    consumer: str | None,
    *,
    text: bool,
) -> _Traced:
    record, unread = None, ""
    try:
        record = record_at(settings.kafka, *wanted)
    except (UnavailableError, RefusedError) as error:
        unread = str(error)
    sent = None if record is None else _output_of(record)
    outputs = [] if sent is None else outputs_of_id(connection, sent)
    outputs = [each for each in outputs if record is not None and each.revision == record.revision]
    consumed = _consumed(consumer, outputs)
    # Searched even if a publisher sent the record, because somebody may use an output topic as input of the job.
    there = find_matches(connection, wanted)
    ends = [*([] if sent is None else [sent.end]), *(wanted._replace(topic=t) for t in there.topic_ids)]
    erased = [each for end in ends for each in erased_at_end(connection, *end)]
    if text:
        printing.print_erased(erased)
        printing.print_record(wanted, record, unread, outputs, there, is_erased=bool(erased))
        printing.print_consumed(outputs, consumed)
    return _Traced(
        "position",
        erased,
        bool(outputs or there.candidates or there.letters),
        record=None if record is None else record._asdict(),
        unread=unread or None,
        outputs=[each._asdict() | _consumed_json(each, consumed) for each in outputs],
        sessions=[each._asdict() for each in there.candidates],
        letters=[each._asdict() for each in there.letters],
    )


def _output_of(record: StoredRecord) -> OutboxId | None:
    try:
        wanted = parse_position(record.outbox_id or "")
    except ValueError:
        return None
    return wanted if isinstance(wanted, OutboxId) else None
