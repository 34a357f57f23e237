"""What a schema may be called, contain or look like: its records are events or malformed, and nothing else happens."""

import base64
import json
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from service.formats.avro.plan import Sequence, Varint, plan_of
from service.formats.faults import fault
from service.formats.proto_budget import always_fits
from service.formats.protobuf import message_class
from service.formats.values import as_json, decoded
from service.formats.wire import framed
from service.formats.writer import RegistryAwayError, WriterSchema
from spark_job.sessions.parsing import formats
from spark_job.sessions.parsing import protobuf as protobuf_reader
from spark_job.sessions.parsing.avro_columns import Kept
from spark_job.sessions.parsing.protobuf import ProtobufReader
from spark_job.sessions.parsing.records import Records, read_records
from spark_job.sessions.settings import AssemblySettings, Format
from tests.fuzz.schemas import HOSTILE, KINDS, SEPARATOR, check_schema

OF = descriptor_pb2.FieldDescriptorProto
ID = 7
AVRO_EVENT = b"\x02k\x16start_event"
PROTO_EVENT = b"\x0a\x01k\x12\x0bstart_event"
ATTRIBUTES = [
    "HasField",
    "DESCRIPTOR",
    "ListFields",
    "FromString",
    "SerializeToString",
    "WhichOneof",
    "Clear",
    "__class__",
]


def read(format: Format, schema: WriterSchema, *bodies: bytes) -> Records:
    values = [framed(ID, body) for body in bodies]
    table = pa.table(
        {
            "offset": pa.array(range(len(values)), pa.int64()),
            "ts": pa.array([0] * len(values), pa.int64()),
            "value": pa.array(values, pa.binary()),
        }
    )
    return read_records(table, AssemblySettings(format=format), {ID: schema})


def proto_schema(file: descriptor_pb2.FileDescriptorProto) -> WriterSchema:
    return WriterSchema("PROTOBUF", base64.b64encode(file.SerializeToString()).decode())


def proto_event(
    *, event_type: int = OF.TYPE_STRING
) -> tuple[descriptor_pb2.FileDescriptorProto, descriptor_pb2.DescriptorProto]:
    file = descriptor_pb2.FileDescriptorProto(syntax="proto3")
    message = file.message_type.add(name="M")
    message.field.add(name="session_key", number=1, type=OF.TYPE_STRING, label=OF.LABEL_OPTIONAL)
    message.field.add(name="event_type", number=2, type=event_type, label=OF.LABEL_OPTIONAL)
    return file, message


def avro_event(*types: object) -> dict[str, object]:
    fields: list[dict[str, object]] = [
        {"name": name, "type": "string"} for name in ("session_key", "event_type")
    ]
    fields += [{"name": f"x{number}", "type": each} for number, each in enumerate(types)]
    return {"type": "record", "name": "R", "fields": fields}


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_a_protobuf_field_may_be_called_as_an_attribute_of_messages(name: str) -> None:
    file, message = proto_event()
    message.field[1].proto3_optional = True
    message.field[1].oneof_index = 0
    message.oneof_decl.add(name="_event_type")
    message.nested_type.add(name="N").field.add(
        name=name, number=1, type=OF.TYPE_INT32, label=OF.LABEL_OPTIONAL
    )
    message.field.add(name=name, number=3, type=OF.TYPE_MESSAGE, type_name=".M.N", label=OF.LABEL_OPTIONAL)
    schema = proto_schema(file)
    value = b"\0" + PROTO_EVENT + b"\x1a\x02\x08\x05"
    assert read("protobuf", schema, value).well_formed.tolist() == [True]
    expected = {"session_key": "k", "event_type": "start_event", name: {name: 5}}
    assert decoded(framed(ID, value), {ID: schema}) == expected
    assert json.loads(as_json(framed(ID, value), {ID: schema})) == expected


def test_a_type_that_is_many_enums_is_none() -> None:
    file, message = proto_event(event_type=OF.TYPE_ENUM)
    file.enum_type.add(name="E").value.add(name="start_event", number=0)
    message.field[1].type_name, message.field[1].label = ".E", OF.LABEL_REPEATED
    (letter,) = read("protobuf", proto_schema(file), b"\0\x0a\x01k\x12\x01\0").letters
    assert "field event_type has another type" in letter.detail


def test_messages_may_be_in_one_another_however_deep_and_round_about() -> None:
    file, message = proto_event()
    for number in range(3_000):
        below = file.message_type.add(name=f"M{number}")
        name = f".M{number + 1}" if number < 2_999 else ".M"
        below.field.add(name="m", number=1, type=OF.TYPE_MESSAGE, type_name=name, label=OF.LABEL_OPTIONAL)
    message.field.add(name="m", number=3, type=OF.TYPE_MESSAGE, type_name=".M0", label=OF.LABEL_OPTIONAL)
    schema = proto_schema(file)
    value = b"\0" + PROTO_EVENT + b"\x1a\x02\x0a\x00"
    assert read("protobuf", schema, value).well_formed.tolist() == [True]
    assert decoded(framed(ID, value), {ID: schema})["m"] == {"m": {}}


def test_each_record_may_name_another_of_many_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each of them takes a look at all messages of its schema, and a batch of them hours."""
    file, _ = proto_event()
    for number in range(50):
        file.message_type.add(name=f"M{number}")
    schema = proto_schema(file)
    assert message_class(schema, (1,)).DESCRIPTOR.name == "M0"
    asked = 0

    class Counted(tuple[object, ...]):
        def __iter__(self) -> Iterator[object]:
            nonlocal asked
            asked += 1
            return super().__iter__()

    from service.formats import protobuf

    messages = Counted(protobuf._messages(schema))
    monkeypatch.setattr(protobuf, "_messages", lambda _: messages)
    assert [message_class(schema, (number + 1,)).DESCRIPTOR.name for number in range(50)] == [
        f"M{n}" for n in range(50)
    ]
    assert asked == 0


def test_not_all_messages_are_looked_at_for_each_that_a_record_names() -> None:
    file, message = proto_event()
    for number in range(6_000):
        below = file.message_type.add(name=f"M{number}")
        name = f".M{(number + 1) % 6_000}"
        below.field.add(name="m", number=1, type=OF.TYPE_MESSAGE, type_name=name, label=OF.LABEL_OPTIONAL)
    message.field.add(name="m", number=3, type=OF.TYPE_MESSAGE, type_name=".M0", label=OF.LABEL_OPTIONAL)
    schema = proto_schema(file)
    assert always_fits(message_class(schema, (0,)).DESCRIPTOR) == -1
    value = b"\0" + PROTO_EVENT + b"\x1a\x02\x0a\x00"
    assert read("protobuf", schema, value).well_formed.tolist() == [True]


def test_few_messages_of_a_schema_are_kept_however_many_its_records_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file, event = proto_event()
    for number in range(20):
        file.message_type.add().CopyFrom(event)
        file.message_type[-1].name = f"M{number}"
    schema = proto_schema(file)
    made: list[tuple[int, ...]] = []
    getters = ProtobufReader._getters

    def counted(self: ProtobufReader, of: WriterSchema, where: tuple[int, ...]) -> object:
        made.append(where)
        return getters(self, of, where)

    monkeypatch.setattr(protobuf_reader, "_MOST_KNOWN", 3)
    monkeypatch.setattr(ProtobufReader, "_getters", counted)
    bodies = [b"\2" + bytes([2 * number]) + PROTO_EVENT for number in [*range(20), *range(20)]]
    assert read("protobuf", schema, *bodies).well_formed.all()
    assert len(made) == 40


def test_avro_records_may_be_in_one_another_however_deep() -> None:
    chain = [{"type": "record", "name": "C0", "fields": [{"name": "a", "type": "int"}]}]
    for number in range(1, 3_000):
        chain.append(
            {"type": "record", "name": f"C{number}", "fields": [{"name": "a", "type": f"C{number - 1}"}]}
        )
    schema = WriterSchema("AVRO", json.dumps(avro_event(["null", *chain], ["null", "C2999"])))
    found = read("avro", schema, AVRO_EVENT + b"\0\0", AVRO_EVENT + b"\0\2\2")
    assert found.well_formed.tolist() == [True, False]
    assert [letter.detail for letter in found.letters] == [
        f"schema {ID}: it claims more values than its bytes can hold"
    ]


@pytest.mark.parametrize("place", ["package", "message", "nested", "service"])
def test_a_protobuf_name_that_would_be_in_those_of_many_others_is_refused(place: str) -> None:
    """A few hundred kilobytes of schema would take gigabytes, and the worker would be killed each time."""
    file, message = proto_event()
    match place:
        case "package":
            file.package = "p" * 1_001
        case "message":
            file.message_type.add(name="m" * 1_001)
        case "nested":
            for _ in range(3):
                message = message.nested_type.add(name="m" * 400)
        case "service":
            file.service.add(name="s" * 1_001)
    why = formats.why_unusable(proto_schema(file), AssemblySettings(format="protobuf"))
    assert why is not None
    assert "over 1000 characters" in why


def test_the_symbols_of_an_enum_are_there_once_however_many_fields_have_it() -> None:
    """Else a schema of some megabytes takes some hundred gigabytes."""
    enum = {"type": "enum", "name": "E", "symbols": ["a", "b"]}
    plan = plan_of(WriterSchema("AVRO", json.dumps(avro_event(enum, "E", "E"))), {}, times_are_text=False)
    assert isinstance(plan.root, Sequence)
    symbols = [each.symbols for each in plan.root.fields if isinstance(each, Varint)]
    assert len(symbols) == 3
    assert {id(each) for each in symbols} == {id(symbols[0])}


def test_the_names_in_a_protobuf_value_are_there_once_however_many_of_them_it_has() -> None:
    """Else a value of some kilobytes takes gigabytes, and so does each attempt to give it to a transform."""
    file, message = proto_event()
    file.enum_type.add(name="E").value.add(name="e" * 1_000)
    message.nested_type.add(name="N").field.add(
        name="n" * 1_000, number=1, type=OF.TYPE_INT32, label=OF.LABEL_OPTIONAL
    )
    message.field.add(name="e", number=3, type=OF.TYPE_ENUM, type_name=".E", label=OF.LABEL_REPEATED)
    message.field.add(name="n", number=4, type=OF.TYPE_MESSAGE, type_name=".M.N", label=OF.LABEL_REPEATED)
    value = framed(ID, b"\0" + PROTO_EVENT + b"\x1a\x64" + b"\0" * 100 + b"\x22\0" * 100)
    found = decoded(value, {ID: proto_schema(file)})
    assert found["e"] == ["e" * 1_000] * 100
    assert found["n"] == [{"n" * 1_000: 0}] * 100
    assert len({id(symbol) for symbol in found["e"]}) == 1
    assert len({id(name) for each in found["n"] for name in each}) == 1


@pytest.mark.parametrize("place", ["field", "symbol", "nested symbol"])
def test_a_protobuf_name_that_takes_no_byte_of_a_value_is_refused_where_it_is_long(place: str) -> None:
    """Else a value of some kilobytes is a text of gigabytes, wherever a transform sends it on."""
    file, message = proto_event()
    match place:
        case "field":
            message.nested_type.add(name="N").field.add(
                name="f" * 1_001, number=1, type=OF.TYPE_INT32, label=OF.LABEL_OPTIONAL
            )
        case "symbol":
            file.enum_type.add(name="E").value.add(name="s" * 1_001)
        case "nested symbol":
            message.enum_type.add(name="E").value.add(name="s" * 1_001)
    why = formats.why_unusable(proto_schema(file), AssemblySettings(format="protobuf"))
    assert why == "a field or an enum's value has a name of over 1000 characters"


def test_an_avro_name_that_takes_no_byte_of_a_value_is_refused_where_it_is_long() -> None:
    below = {"type": "record", "name": "S", "fields": [{"name": "f" * 1_001, "type": "int"}]}
    schema = WriterSchema("AVRO", json.dumps(avro_event({"type": "array", "items": below})))
    why = formats.why_unusable(schema, AssemblySettings(format="avro"))
    assert why == "not an Avro schema: it has a name of over 1000 characters"


@pytest.mark.parametrize("names", [{"namespace": "n" * 1_001}, {"name": f"{'n' * 1_000}.R"}])
def test_an_avro_name_that_would_be_in_those_of_many_others_is_refused(names: dict[str, str]) -> None:
    schema = WriterSchema("AVRO", json.dumps(avro_event() | names))
    why = formats.why_unusable(schema, AssemblySettings(format="avro"))
    assert why == "not an Avro schema: it has a name of over 1000 characters"


def test_the_symbols_of_enums_are_noted_once_without_a_comparison_of_all() -> None:
    """Two enums of some hundred thousand symbols in one schema would take hours otherwise, for each piece of input."""
    kept = Kept(0)
    many, others = tuple(f"a{n}" for n in range(100_000)), tuple(f"b{n}" for n in range(50_000))
    assert [kept.place(each) for each in (many, others, ("b1",), many, others, ("b1",))] == [
        *(0, 100_000, 150_000),
        *(0, 100_000, 150_000),
    ]
    assert kept.symbols[100_000] == "b0"


def test_records_of_more_branches_than_a_few_are_events_all_the_same() -> None:
    branches = [
        {"type": "record", "name": f"B{n}", "fields": [{"name": "b", "type": "int"}]} for n in range(60)
    ]
    schema = WriterSchema("AVRO", json.dumps(avro_event(["null", *branches], "string")))
    order = np.random.default_rng(1).permutation(60).tolist()
    bodies = [AVRO_EVENT + bytes([2 * (n + 1)]) + b"\2\2x" for n in order]
    bodies[7] = AVRO_EVENT + bytes([2 * 61]) + b"\2\2x"
    bodies[9] = bodies[9][:-1]
    good = read("avro", schema, *bodies).well_formed.tolist()
    assert [at for at, is_good in enumerate(good) if not is_good] == [7, 9]


class _Raising:
    """A reader that raises for some values, and gives the others."""

    def __init__(self, reader: formats.SchemaReader, error: Exception) -> None:
        self._reader, self._error = reader, error
        self.wanted = reader.wanted

    def read(
        self,
        payloads: pa.LargeBinaryArray,
        schema: WriterSchema,
        rows: "np.ndarray[tuple[int], np.dtype[np.int64]]",
    ) -> object:
        if any(payloads[row].as_py().endswith(b"!") for row in rows.tolist()):
            raise self._error
        return self._reader.read(payloads, schema, rows)

    def refusal_of(self, payload: bytes, schema: WriterSchema) -> str:
        raise self._error

    def why_unusable(self, schema: WriterSchema) -> str | None:
        raise self._error


def raising(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    made = formats._schema_reader
    monkeypatch.setattr(formats, "_schema_reader", lambda of: _Raising(made(of), error))


SCHEMA = WriterSchema("AVRO", json.dumps(avro_event("string")))


@pytest.mark.parametrize(
    "error",
    [
        RecursionError("deep"),
        OverflowError("x"),
        KeyError("k"),
        AttributeError("a"),
        SystemError("s"),
        TypeError("t"),
    ],
)
@pytest.mark.guarantee(13)
def test_whatever_a_library_raises_for_a_record_is_a_verdict_on_it_alone(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    raising(monkeypatch, error)
    found = read("avro", SCHEMA, *[AVRO_EVENT + (b"\2!" if n in (3, 8) else b"\2x") for n in range(10)])
    assert np.flatnonzero(~found.well_formed).tolist() == [3, 8]
    assert {type(error).__name__ in letter.detail for letter in found.letters} == {True}
    why = formats.why_unusable(SCHEMA, AssemblySettings(format="avro"))
    assert why is not None
    assert type(error).__name__ in why


@pytest.mark.parametrize(
    "error", [MemoryError(), OSError(24, "files"), ImportError("x"), RegistryAwayError("away")]
)
def test_what_the_machine_lacks_is_no_verdict(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    raising(monkeypatch, error)
    with pytest.raises(type(error)):
        read("avro", SCHEMA, AVRO_EVENT + b"\2!")
    with pytest.raises(type(error)):
        formats.why_unusable(SCHEMA, AssemblySettings(format="avro"))


def test_an_error_that_cannot_be_shown_is_a_verdict_as_well() -> None:
    class DeepError(Exception):
        def __str__(self) -> str:
            raise RecursionError

    assert fault(DeepError(), "not a schema") == "not a schema: DeepError: it cannot be shown"


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from([number for number in range(HOSTILE, 256) if KINDS[number % 3] != "json-schema"]),
    st.binary(max_size=60),
    st.lists(st.binary(max_size=30), min_size=1, max_size=3),
)
def test_any_schema_of_a_stranger_makes_its_records_events_or_malformed(
    kind: int, text: bytes, bodies: list[bytes]
) -> None:
    event = b"\0" + PROTO_EVENT + b"\x18\x01" if KINDS[kind % 3] == "protobuf" else AVRO_EVENT + b"\2"
    values = [event + body.replace(SEPARATOR, b"\0") for body in bodies]
    check_schema(bytes([kind]) + SEPARATOR.join([text.replace(SEPARATOR, b"\0"), *values]))
