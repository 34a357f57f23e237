"""Prints the results of `publisher trace`."""

from collections.abc import Mapping, Sequence

from contract.positions import RecordPosition
from publisher.outbox.erased import ErasedSession
from publisher.trace.consumers import Consumptions, described
from publisher.trace.input_positions import PositionMatches
from publisher.trace.outputs import Output, OutputKey, must_be_in_kafka
from publisher.trace.records import Copy, StoredRecord
from service.commands.output import console
from service.commands.tables import Table
from service.printable import printable


def print_erased(erased: Sequence[ErasedSession]) -> None:
    """Print one line for each erased session."""
    for each in erased:
        console().print(str(each))


def print_deliveries(outputs: Sequence[Output]) -> None:
    """Print which delivery sent each output."""
    for each in outputs:
        by = "not sent by a delivery that is recorded"
        if each.delivery_seq is not None:
            at = "" if each.delivered_at is None else f" at {each.delivered_at:%F %T} UTC"
            by = f"sent by delivery {each.delivery_seq} of epoch {each.epoch}, lane {each.lane}{at}"
        console().print(f"session key {printable(each.session_key)}, batch {each.batch_id}: {by}")


def print_outputs(
    outputs: Sequence[Output],
    copies: Mapping[OutputKey, list[Copy]],
    consumed: Consumptions | None = None,
    *,
    scan: bool = False,
) -> None:
    """Print the table of outputs, each with its position in Kafka and its state at consumers."""
    table = Table(["batch", "rev.", "state", "outbox-id", "topic"])
    for output in outputs:
        positions = [_position(copy) for copy in copies.get(output.identity, [])]
        if not positions and output.state == "delivered":
            positions = [
                "not in Kafka (any more)"
                if must_be_in_kafka(output, scan=scan)
                else "offsets are not recorded: --scan looks"
            ]
        table.add(
            *(str(output.batch_id), str(output.revision), output.state, output.outbox_id, output.topic),
            note="\n".join([*positions, *_consumed(output, consumed)]),
        )
    table.print(console())


def print_consumed(outputs: Sequence[Output], consumed: Consumptions | None) -> None:
    """Print the state of each output at consumers."""
    for output in outputs:
        for line in _consumed(output, consumed):
            console().print(line)


def _consumed(output: Output, consumed: Consumptions | None) -> list[str]:
    if consumed is None:
        return []
    return described(consumed.get(output.outbox_id, []), output.revision)


def _position(copy: Copy) -> str:
    replayed = "" if copy.replay is None else f", replay {printable(copy.replay)}"
    revision = f", revision {copy.revision}" if copy.revision else ""
    return f"{copy.topic} partition {copy.partition} offset {copy.offset}{revision}{replayed}"


def print_record(
    wanted: RecordPosition,
    record: StoredRecord | None,
    unread: str,
    outputs: Sequence[Output],
    there: PositionMatches,
    *,
    is_erased: bool,
) -> None:
    """Print the record or the sessions at a position in Kafka. `unread`: why Kafka was not read, empty if it was."""
    out = console()
    if unread:
        out.print(f"Kafka was not read: {unread}")
    elif record is None:
        out.print(
            f"Kafka has no committed record at {wanted}: the offset is of an aborted record or a commit marker, or the record was "
            "compacted or has expired"
        )
    elif record.outbox_id is not None:
        replay = "" if record.replay is None else f", sent by replay {printable(record.replay)}"
        out.print(f"outbox-id {printable(record.outbox_id)}, revision {record.revision}{replay}")
        if not outputs and not is_erased:
            out.print(
                "the outbox has no such output: another outbox's publisher sent it, or retention has dropped it"
            )
        print_deliveries(outputs)
    if there.candidates or there.letters:
        _print_matches(there)
    elif not there.topic_ids and not outputs and not is_erased:
        out.print(f"topic {wanted.topic!r} is no input topic of this outbox")
    elif not outputs and not is_erased:
        out.print(
            "no session and no dead letter has that event: it was not read yet, or its session is still open"
        )


def _print_matches(there: PositionMatches) -> None:
    table = Table(["session key", "batch", "from offset", "to offset", "event"])
    for each in there.candidates:
        event = "its first or last" if each.exact else "perhaps: sessions overlap there"
        offsets = (str(each.start_offset), str(each.end_offset))
        table.add(each.session_key, str(each.batch_id), *offsets, event)
    for letter in there.letters:
        event = f"dead letter {letter.dead_letter_id}: {letter.reason}, {letter.state}"
        table.add(letter.session_key, str(letter.batch_id), None, None, event)
    table.print(console())
