"""`publisher find`."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, NamedTuple

import psycopg
import typer
from confluent_kafka import KafkaException

from db.statements import queries
from publisher.commands.common import database
from publisher.kafka.lookup import Copy, Place, Range, copies
from publisher.kafka.topics import Topics
from service import kafka_client
from service.commands.options import Config, Json
from service.commands.output import console, print_json
from service.commands.tables import Table
from service.errors import UnavailableError
from service.settings import KafkaSettings, load_settings

_ROWS = queries("publisher", "rows")


Identity = tuple[str, int]
"""(outbox-id, revision)"""


class Output(NamedTuple):
    """One output of a session key. `kafka_offsets`: partition -> first and last offset of its transaction in the topic; None: unknown."""

    batch_id: int
    outbox_id: str
    revision: int
    topic: str
    state: str
    delivered_at: datetime | None
    kafka_offsets: dict[str, list[int]] | None

    @property
    def identity(self) -> Identity:
        """What its records have in common, whoever sent them."""
        return self.outbox_id, self.revision


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
    output of this key, or Kafka lacks a delivered one that was looked for.
    """
    settings = load_settings(config)
    with database(settings, "find") as connection:
        outputs = _outputs(connection, session_key, topic)
    try:
        found = _found(settings.kafka, outputs, scan=scan)
    except KafkaException as error:
        raise UnavailableError(f"Kafka cannot be read: {error.args[0].str()}") from error
    if as_json:
        print_json([_as_json(output, found.get(output.identity, [])) for output in outputs])
    else:
        _print(session_key, outputs, found, scan=scan)
    lost = [output for output in outputs if _looked_for(output, scan=scan) and output.identity not in found]
    raise typer.Exit(1 if lost or not outputs else 0)


def _outputs(connection: psycopg.Connection[Any], session_key: str, topic: str | None) -> list[Output]:
    rows = connection.execute(_ROWS["outputs_of_key"], {"session_key": session_key, "topic": topic})
    return [Output(*row) for row in rows]


def _found(kafka: KafkaSettings, outputs: Sequence[Output], *, scan: bool) -> dict[Identity, list[Copy]]:
    topics = Topics(kafka_client.admin_client(kafka), timeout_s=kafka.request_timeout_s, create=False)
    names = {output.topic for output in outputs if scan or output.kafka_offsets}
    partitions = {name: topics.partitions(name) for name in sorted(names)}
    layers = [_whole(topics, partitions)] if scan else layered(_recorded(outputs, partitions))
    found: dict[Identity, list[Copy]] = defaultdict(list)
    for offsets in layers:
        if offsets:
            for copy in copies(kafka, offsets, {output.outbox_id for output in outputs}):
                found[copy.outbox_id, copy.revision].append(copy)
    return found


def _recorded(outputs: Iterable[Output], partitions: Mapping[str, int]) -> Iterator[tuple[Place, Range]]:
    """The offsets of each delivery, in topics that still exist."""
    for output in outputs:
        for partition, (first, last) in (output.kafka_offsets or {}).items():
            if int(partition) < partitions[output.topic]:
                yield (output.topic, int(partition)), (first, last)


def layered(ranges: Iterable[tuple[Place, Range]]) -> list[dict[Place, Range]]:
    """Return the ranges in as few maps as their partitions allow. Those that overlap are one: no record is read twice."""
    layers: list[dict[Place, Range]] = []
    depth: dict[Place, int] = defaultdict(int)
    for place, (first, last) in sorted(set(ranges)):
        newest = depth[place] - 1
        if newest >= 0 and first <= layers[newest][place][1]:
            layers[newest][place] = layers[newest][place][0], max(last, layers[newest][place][1])
            continue
        if depth[place] == len(layers):
            layers.append({})
        layers[depth[place]][place] = first, last
        depth[place] += 1
    return layers


def _whole(topics: Topics, partitions: Mapping[str, int]) -> dict[Place, Range]:
    offsets: dict[Place, Range] = {}
    for name, count in partitions.items():
        ends = topics.ends(name, range(count))
        offsets |= {(name, partition): (0, end - 1) for partition, end in ends.items() if end > 0}
    return offsets


def _looked_for(output: Output, *, scan: bool) -> bool:
    return output.state == "delivered" and (scan or output.kafka_offsets is not None)


def _as_json(output: Output, found: Sequence[Copy]) -> dict[str, Any]:
    return output._asdict() | {"copies": [copy._asdict() for copy in found]}


def _print(
    session_key: str, outputs: Sequence[Output], found: Mapping[Identity, list[Copy]], *, scan: bool
) -> None:
    out = console()
    if not outputs:
        out.print(
            f"the outbox has no output of session key {session_key!r}: `spark-job dead-letters list --key` shows its dead letters"
        )
        return
    table = Table(["batch", "rev.", "state", "outbox-id", "topic"])
    for output in outputs:
        places = [_place(copy) for copy in found.get(output.identity, [])]
        if not places and output.state == "delivered":
            places = [
                "not in Kafka (any more)"
                if _looked_for(output, scan=scan)
                else "offsets are not recorded: --scan looks"
            ]
        table.add(
            *(str(output.batch_id), str(output.revision), output.state, output.outbox_id, output.topic),
            note="\n".join(places),
        )
    table.print(out)


def _place(copy: Copy) -> str:
    replayed = "" if copy.replay is None else f", replay {copy.replay}"
    revision = f", revision {copy.revision}" if copy.revision else ""
    return f"{copy.topic} partition {copy.partition} offset {copy.offset}{revision}{replayed}"
