"""CPU of the assembler for each event in every format, beside JSON in the same run.

    python -m benchmarks.formats [--sessions 2000] [--calls 9]

Sessions of 102 events with the same fields; `assemble` alone, and with every value decoded as a transform would. CPU time of the process,
medians of the calls; the formats take turns, and the first turn is warm-up. Prints a table.
"""

import base64
import io
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Annotated, Any

import fastavro
import orjson
import pyarrow as pa
import typer
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from service.formats.wire import framed
from service.formats.writer import Schemas, WriterSchema
from spark_job.sessions.assembler import assemble
from spark_job.sessions.session import to_session, value_decoder
from spark_job.sessions.settings import AssemblySettings
from spark_job.sessions.state.open_state import OpenState

ENTRIES = 100
_NAMES = ("event_type", "session_key", "page", "pad")
_NUMBERS = ("seq", "ms")
_IDS = {"avro": 1, "protobuf": 2, "json-schema": 3}

Encode = Callable[[dict[str, Any]], bytes]


@dataclass(frozen=True, slots=True)
class Way:
    """How the events are written, and read by the assembler."""

    rules: AssemblySettings
    encode: Encode


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one format. `of_values`: with all values decoded, too; None where there is nothing to decode."""

    event_bytes: float
    assembled_us: float
    of_values_us: float | None


def avro() -> tuple[str, Encode]:
    """The schema, and what encodes by it."""
    fields = [{"name": name, "type": "string"} for name in _NAMES] + [
        {"name": name, "type": "long"} for name in _NUMBERS
    ]
    text = json.dumps({"type": "record", "name": "Event", "fields": fields})
    parsed = fastavro.parse_schema(json.loads(text))

    def encode(event: dict[str, Any]) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, event)
        return framed(_IDS["avro"], out.getvalue())

    return text, encode


def protobuf() -> tuple[str, Encode]:
    """The same for Protobuf."""
    file = descriptor_pb2.FileDescriptorProto(name="event.proto", syntax="proto3")
    message = file.message_type.add(name="Event")
    of = descriptor_pb2.FieldDescriptorProto
    for number, name in enumerate((*_NAMES, *_NUMBERS), 1):
        kind = of.TYPE_STRING if name in _NAMES else of.TYPE_INT64
        message.field.add(name=name, number=number, type=kind, label=of.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("Event"))
    text = base64.b64encode(file.SerializeToString()).decode()
    return text, lambda event: framed(_IDS["protobuf"], b"\0" + made(**event).SerializeToString())


def events(sessions: int) -> list[dict[str, Any]]:
    """Events of sessions that are all open at once."""
    kinds = ["start_event", *["entry_event"] * ENTRIES, "end_event"]
    return [
        {
            "event_type": kind,
            "session_key": f"session-{number:06d}",
            "page": f"/shop/item/{number}",
            "pad": "x" * 30,
            "seq": position,
            "ms": position * 15,
        }
        for position, kind in enumerate(kinds)
        for number in range(sessions)
    ]


def ways() -> tuple[dict[str, Way], Schemas]:
    """Every format, and the schemas that their values name."""
    avro_text, as_avro = avro()
    proto_text, as_proto = protobuf()
    found = {
        "json": Way(AssemblySettings(), orjson.dumps),
        "json-schema": Way(
            AssemblySettings(format="json-schema"),
            lambda event: framed(_IDS["json-schema"], orjson.dumps(event)),
        ),
        "avro": Way(AssemblySettings(format="avro"), as_avro),
        "protobuf": Way(AssemblySettings(format="protobuf"), as_proto),
        "json, key and type from the record": Way(
            AssemblySettings(key_path=None, type_path=None), orjson.dumps
        ),
        "bytes": Way(AssemblySettings(key_path=None, type_path=None, format="bytes"), orjson.dumps),
    }
    return found, {
        _IDS["avro"]: WriterSchema("AVRO", avro_text),
        _IDS["protobuf"]: WriterSchema("PROTOBUF", proto_text),
        _IDS["json-schema"]: WriterSchema("JSON", "{}"),
    }


def table(given: list[dict[str, Any]], encode: Encode) -> pa.Table:
    """The records; key and type also as columns of their own, for formats whose values have no fields."""
    return pa.table(
        {
            "offset": pa.array(range(len(given)), pa.int64()),
            "ts": pa.array([event["ms"] for event in given], pa.int64()),
            "value": pa.array([encode(event) for event in given], pa.binary()),
            "key": pa.array([event["session_key"].encode() for event in given], pa.binary()),
            "type": pa.array([event["event_type"].encode() for event in given], pa.binary()),
        }
    )


def cpu_s(records: pa.Table, rules: AssemblySettings, schemas: Schemas, *, decode: bool) -> float:
    """CPU seconds of one call. `decode`: with the value of every event."""
    decoder = value_decoder(rules.format, schemas)
    begun = time.process_time()
    assembled = assemble(OpenState.empty(), records, rules, schemas)
    if decode:
        for closed in assembled.closed:
            for event in to_session(closed, "topic", 0, decoder).events:
                event.value  # noqa: B018
    spent = time.process_time() - begun
    assert len(assembled.closed) * (ENTRIES + 2) == len(records), "every record is an event of a session"
    return spent


def measured(sessions: int, calls: int) -> dict[str, Cost]:
    """Measure every format."""
    found, schemas = ways()
    given = events(sessions)
    tables = {name: table(given, way.encode) for name, way in found.items()}
    spent: dict[tuple[str, bool], list[float]] = {}
    for call in range(calls + 1):
        for name, way in found.items():
            for decode in (False, True) if way.rules.format != "bytes" else (False,):
                seconds = cpu_s(tables[name], way.rules, schemas, decode=decode)
                if call:  # the first is warm-up
                    spent.setdefault((name, decode), []).append(seconds)

    def us(name: str, decode: bool) -> float | None:
        return 1e6 * median(spent[name, decode]) / len(given) if (name, decode) in spent else None

    return {
        name: Cost(tables[name].column("value").nbytes / len(given), us(name, False) or 0.0, us(name, True))
        for name in found
    }


def as_table(costs: Mapping[str, Cost]) -> str:
    """Markdown, for docs/performance.md."""
    json_us = costs["json"].assembled_us
    lines = [
        "| format | bytes an event | assembled, us of CPU an event | beside JSON | values decoded, too |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for name, cost in costs.items():
        values = "" if cost.of_values_us is None else f"{cost.of_values_us:.2f}"
        lines.append(
            f"| {name} | {cost.event_bytes:.0f} | {cost.assembled_us:.2f} | {cost.assembled_us / json_us:.2f} | {values} |"
        )
    return "\n".join(lines)


def main(
    sessions: Annotated[int, typer.Option(min=1, help="Sessions of 102 events, all open at once.")] = 2000,
    calls: Annotated[int, typer.Option(min=1, help="Calls for each format; the medians count.")] = 9,
) -> None:
    """Measure and print."""
    print(as_table(measured(sessions, calls)))


if __name__ == "__main__":
    typer.run(main)
