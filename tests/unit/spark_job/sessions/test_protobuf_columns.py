"""Protobuf is read as Confluent's own deserializer reads it: over random files, whole messages and damaged ones."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext, SerializationError
from google.protobuf import descriptor_pb2
from google.protobuf.json_format import MessageToDict
from hypothesis import given, settings
from hypothesis import strategies as st

from service.formats.protobuf import decode
from service.formats.wire import message_path, split
from service.formats.writer import WriterSchema
from spark_job.sessions.parsing.records import read_records
from spark_job.sessions.settings import MAX_TS_MS, MIN_TS_MS, AssemblySettings
from tests.support.schemas.clicks import class_of

RULES = AssemblySettings(
    format="protobuf", type_path=("a", "type"), time_path=("time",), time_format="epoch_ms"
)
KINDS = ["start_event", "entry_event", "end_event"]
OF = descriptor_pb2.FieldDescriptorProto
TEXTS = st.text(max_size=20)
LEAVES: list[tuple[int, st.SearchStrategy[Any]]] = [
    (OF.TYPE_DOUBLE, st.floats(allow_nan=False)),
    (OF.TYPE_FLOAT, st.floats(width=32, allow_nan=False)),
    (OF.TYPE_INT64, st.integers(-(2**63), 2**63 - 1)),
    (OF.TYPE_UINT64, st.integers(0, 2**64 - 1)),
    (OF.TYPE_SINT32, st.integers(-(2**31), 2**31 - 1)),
    (OF.TYPE_FIXED64, st.integers(0, 2**64 - 1)),
    (OF.TYPE_BOOL, st.booleans()),
    (OF.TYPE_STRING, TEXTS),
    (OF.TYPE_BYTES, st.binary(max_size=20)),
]

Message = Any


@dataclass(frozen=True)
class Log:
    """A message's class, and values of it."""

    made: type[Message]
    values: list[dict[str, Any]]


def plain_field(message: Any, name: str, number: int, kind: int, type_name: str = "") -> Any:
    return message.field.add(
        name=name, number=number, type=kind, label=OF.LABEL_OPTIONAL, type_name=type_name or None
    )


@st.composite
def other_fields(
    draw: st.DrawFn, message: Any, full_name: str, numbers: Iterator[int], level: int = 0
) -> dict[str, st.SearchStrategy[Any]]:
    """Add some fields of all kinds to a message; return values of each."""
    values: dict[str, st.SearchStrategy[Any]] = {}
    for at in range(draw(st.integers(0 if level else 1, 3))):
        name = f"o{at}"
        shape = draw(st.sampled_from(["one", "optional", "many", "map", *(["nested"] if level < 2 else [])]))
        kind, leaf = draw(st.sampled_from(LEAVES))
        if shape == "nested":
            nested = message.nested_type.add(name=f"N{at}")
            below = draw(other_fields(nested, f"{full_name}.N{at}", count(1), level + 1))
            plain_field(message, name, next(numbers), OF.TYPE_MESSAGE, f".{full_name}.N{at}")
            values[name] = st.fixed_dictionaries({}, optional=below)
        elif shape == "map":
            entry = message.nested_type.add(name=f"O{at}Entry")
            entry.options.map_entry = True
            plain_field(entry, "key", 1, OF.TYPE_STRING)
            plain_field(entry, "value", 2, kind)
            field = plain_field(message, name, next(numbers), OF.TYPE_MESSAGE, f".{full_name}.{entry.name}")
            field.label = OF.LABEL_REPEATED
            values[name] = st.dictionaries(TEXTS, leaf, max_size=3)
        else:
            field = plain_field(message, name, next(numbers), kind)
            values[name] = leaf
            if shape == "many":
                field.label = OF.LABEL_REPEATED
                values[name] = st.lists(leaf, max_size=5)
            elif shape == "optional":
                presence(message, field)
    return values


def presence(message: Any, field: Any) -> None:
    """Make a field `optional`."""
    field.proto3_optional = True
    field.oneof_index = len(message.oneof_decl)
    message.oneof_decl.add(name=f"_{field.name}")


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """A message somewhere in a file, with the fields that the rules name between others, and some values of it."""
    file = descriptor_pb2.FileDescriptorProto(
        name="e.proto", package="p", syntax="proto3", dependency=["google/protobuf/timestamp.proto"]
    )
    for at in range(draw(st.integers(0, 2))):
        file.message_type.add(name=f"Before{at}")
    message, full_name = file.message_type.add(name="E"), "p.E"
    for at in range(draw(st.integers(0, 2))):
        message.nested_type.add(name=f"Other{at}")
        message, full_name = message.nested_type.add(name=f"In{at}"), f"{full_name}.In{at}"
    numbers = iter(draw(st.permutations(range(1, 40))))
    a = message.nested_type.add(name="A")
    plain_field(a, "n", 1, OF.TYPE_INT32)
    if draw(st.booleans()):
        kind = a.enum_type.add(name="Kind")
        for number, name in enumerate(["UNKNOWN", *KINDS]):
            kind.value.add(name=name, number=number)
        plain_field(a, "type", 2, OF.TYPE_ENUM, f".{full_name}.A.Kind")
    else:
        plain_field(a, "type", 2, OF.TYPE_STRING)
    plain_field(message, "a", next(numbers), OF.TYPE_MESSAGE, f".{full_name}.A")
    others = st.fixed_dictionaries({}, optional=draw(other_fields(message, full_name, numbers)))
    key = plain_field(message, "session_key", next(numbers), OF.TYPE_STRING)
    times: st.SearchStrategy[Any] = st.integers(0, 2**40)
    if draw(st.booleans()):
        plain_field(message, "time", next(numbers), OF.TYPE_MESSAGE, ".google.protobuf.Timestamp")
        times = st.fixed_dictionaries(
            {"seconds": st.integers(0, 2**31), "nanos": st.integers(0, 999_999_999)}
        )
    else:
        plain_field(message, "time", next(numbers), OF.TYPE_INT64)
    if draw(st.booleans()):
        presence(message, key)
    named = st.fixed_dictionaries(
        {
            "session_key": st.text(min_size=1, max_size=20).filter(lambda text: "\0" not in text),
            "a": st.fixed_dictionaries({"n": st.integers(0, 300), "type": st.sampled_from(KINDS)}),
            "time": times,
        }
    )
    both = st.tuples(others, named).map(lambda two: two[0] | two[1])
    return Log(class_of(file, full_name), draw(st.lists(both, min_size=1, max_size=6)))


class Written:
    """Values as Confluent's serializer writes them, with the schema as its registry has it."""

    def __init__(self, log: Log) -> None:
        client = SchemaRegistryClient.new_client({"url": "mock://"})
        where = SerializationContext("t", MessageField.VALUE)
        serialize = ProtobufSerializer(log.made, client)
        self.messages = [log.made(**value) for value in log.values]
        self.records: list[bytes] = [serialize(message, where) for message in self.messages]
        self.schema_id, _ = split(self.records[0])
        self.schemas = {
            self.schema_id: WriterSchema("PROTOBUF", client.get_schema(self.schema_id).schema_str or "")
        }
        self._deserialize = ProtobufDeserializer(log.made, {"use.deprecated.format": False})
        self._where = where

    def reference(self, record: bytes) -> Message | None:
        """The message that Confluent's deserializer reads."""
        try:
            return self._deserialize(record, self._where)
        except SerializationError:
            return None


def table(values: list[bytes]) -> pa.Table:
    return pa.table(
        {
            "offset": pa.array(range(len(values)), pa.int64()),
            "ts": pa.array([0] * len(values), pa.int64()),
            "value": pa.array(values, pa.binary()),
        }
    )


def milliseconds(message: Message) -> int | None:
    """The event's time."""
    if isinstance(message.time, int):
        return message.time
    if not message.HasField("time"):
        return None
    return int(message.time.seconds) * 1000 + message.time.nanos // 1_000_000  # type: ignore[no-any-return]


def kind_of(message: Message) -> str | None:
    """The event's type by name."""
    kind = message.a.type
    if isinstance(kind, str):
        return kind
    return ["UNKNOWN", *KINDS][kind] if 0 <= kind < 4 else None


def is_event(message: Message | None) -> bool:
    """Whether a message has all that the rules ask for."""
    if message is None or not message.HasField("a"):
        return False
    key, ms = message.session_key, milliseconds(message)
    timed = ms is not None and MIN_TS_MS <= ms <= MAX_TS_MS
    return bool(key) and "\0" not in key and kind_of(message) in KINDS and timed


@settings(max_examples=100)
@given(logs())
def test_the_fields_of_whole_messages_are_what_the_reference_reads(log: Log) -> None:
    written = Written(log)
    read = [written.reference(record) for record in written.records]
    assert read == written.messages
    records = read_records(table(written.records), RULES, written.schemas)
    assert [letter.detail for letter in records.letters] == []
    assert records.key.cast(pa.large_string()).to_pylist() == [each.session_key for each in read]
    assert records.events.ts.tolist() == [milliseconds(each) for each in read]
    assert [KINDS[kind] for kind in records.events.kind] == [kind_of(each) for each in read]
    for record, message in zip(written.records, read, strict=True):
        value = decode(written.schemas[written.schema_id], *message_path(split(record)[1]))
        shown = MessageToDict(message, preserving_proto_field_name=True)
        assert set(shown) <= set(value)
        assert value["session_key"] == message.session_key
        assert value["a"]["type"] == kind_of(message)


@settings(max_examples=100)
@given(logs(), st.data())
def test_damaged_messages_have_the_verdict_of_the_reference_among_whole_ones(
    log: Log, data: st.DataObject
) -> None:
    written = Written(log)
    damaged = list(written.records)
    for _ in range(6):
        record = data.draw(st.sampled_from(written.records))
        head = len(record) - len(message_path(split(record)[1])[1])
        body = bytearray(record[head:])
        if body and data.draw(st.booleans()):
            body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
        else:
            del body[data.draw(st.integers(0, len(body))) :]
        damaged.append(record[:head] + bytes(body))
    records = read_records(table(damaged), RULES, written.schemas)
    assert records.well_formed.tolist() == [is_event(written.reference(record)) for record in damaged]
    assert records.well_formed[: len(written.records)].all()


def test_a_time_beyond_all_calendars_is_malformed_and_stops_nobody() -> None:
    file = descriptor_pb2.FileDescriptorProto(
        name="e.proto", package="p", syntax="proto3", dependency=["google/protobuf/timestamp.proto"]
    )
    message = file.message_type.add(name="E")
    plain_field(message, "session_key", 1, OF.TYPE_STRING)
    plain_field(message, "event_type", 2, OF.TYPE_STRING)
    plain_field(message, "time", 3, OF.TYPE_MESSAGE, ".google.protobuf.Timestamp")
    made = class_of(file, "p.E")
    values = [
        {"session_key": "k", "event_type": KINDS[0], "time": {"seconds": seconds}}
        for seconds in (0, 2**63 - 1, -(2**63), 1)
    ]
    written = Written(Log(made, values))
    rules = AssemblySettings(format="protobuf", time_path=("time",))
    records = read_records(table(written.records), rules, written.schemas)
    assert records.well_formed.tolist() == [True, False, False, True]
    assert all("field time is no time" in letter.detail for letter in records.letters)
    with pytest.raises(ValueError, match="out of range"):
        decode(written.schemas[written.schema_id], *message_path(split(written.records[1])[1]))
