"""CPU of the assembler for each event in every format, beside JSON in the same run.

    python -m benchmarks.formats [--sessions 2000] [--calls 5]

Sessions of 102 events with the same fields; `assemble` alone, and with every value decoded as a transform would. CPU time of one thread;
the formats take turns. The last line is one JSON object.
"""

import argparse
import base64
import io
import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import fastavro
import orjson
import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from service.schemas.wire import framed
from service.schemas.writer import Schemas, WriterSchema
from spark_job.sessions.assembler import assemble
from spark_job.sessions.session import to_session, value_decoder
from spark_job.sessions.settings import AssemblySettings, Format
from spark_job.sessions.state.open_state import OpenState

ENTRIES = 100
PLAIN = AssemblySettings()
_NAMES = ("event_type", "session_key", "page", "pad")
_NUMBERS = ("seq", "ms")
_IDS = {"avro": 1, "protobuf": 2, "json-schema": 3}

Encode = Callable[[dict[str, Any]], bytes]


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


def table(given: list[dict[str, Any]], encode: Encode, call: int) -> pa.Table:
    """The records; key and type also as columns of their own, for `bytes`."""
    return pa.table(
        {
            "offset": pa.array(range(call * 10**9, call * 10**9 + len(given)), pa.int64()),
            "ts": pa.array([event["ms"] for event in given], pa.int64()),
            "value": pa.array([encode(event) for event in given], pa.binary()),
            "key": pa.array([event["session_key"].encode() for event in given], pa.binary()),
            "type": pa.array([event["event_type"].encode() for event in given], pa.binary()),
        }
    )


def measured(records: pa.Table, rules: AssemblySettings, schemas: Schemas, *, decode: bool) -> float:
    """CPU seconds of one call."""
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


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=2000)
    parser.add_argument("--calls", type=int, default=5)
    arguments = parser.parse_args()
    avro_text, as_avro = avro()
    proto_text, as_proto = protobuf()
    schemas: Schemas = {
        _IDS["avro"]: WriterSchema("AVRO", avro_text),
        _IDS["protobuf"]: WriterSchema("PROTOBUF", proto_text),
        _IDS["json-schema"]: WriterSchema("JSON", "{}"),
    }
    ways: dict[str, tuple[Format, Encode]] = {
        "json": ("json", orjson.dumps),
        "json, key and type from the record": ("json", orjson.dumps),
        "bytes": ("bytes", orjson.dumps),
        "avro": ("avro", as_avro),
        "protobuf": ("protobuf", as_proto),
        "json-schema": ("json-schema", lambda event: framed(_IDS["json-schema"], orjson.dumps(event))),
    }
    given = events(arguments.sessions)
    spent = {name: [0.0, 0.0] for name in ways}
    size = {}
    for call in range(arguments.calls + 1):
        for name, (format, encode) in ways.items():
            records = table(given, encode, call)
            size[name] = records.column("value").nbytes / len(given)
            of_record = format == "bytes" or "record" in name
            rules = replace(PLAIN, format=format)
            if of_record:
                rules = AssemblySettings(key_path=None, type_path=None, format=format)
            both = [
                measured(records, rules, schemas, decode=False),
                0.0 if format == "bytes" else measured(records, rules, schemas, decode=True),
            ]
            if call:  # the first is warm-up
                spent[name] = [total + each for total, each in zip(spent[name], both, strict=True)]
    n = arguments.calls * len(given)
    print("| format | bytes an event | assembled, us of CPU an event | beside JSON | values decoded, too |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name, (alone, decoded) in spent.items():
        of_json = alone / spent["json"][0]
        whole = f"{1e6 * decoded / n:.2f}" if decoded else "-"
        print(f"| {name} | {size[name]:.0f} | {1e6 * alone / n:.2f} | {of_json:.2f} | {whole} |")
    report = {
        "benchmark": "formats",
        "sessions": arguments.sessions,
        "calls": arguments.calls,
        "us_per_event": {name: [round(1e6 * each / n, 3) for each in both] for name, both in spent.items()},
    }
    print(orjson.dumps(report).decode())


if __name__ == "__main__":
    main()
