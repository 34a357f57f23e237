"""What comes out of a value is bounded by its bytes, in every decoder, before anything is decoded."""

import json

import numpy as np
import pyarrow as pa
import pytest

from service.formats.avro.plan import Sequence, Union, plan_of
from service.formats.avro.single import NotOfSchemaError, SingleValue
from service.formats.budget import MOST_DECIMAL_BYTES, most_values
from service.formats.proto_text import descriptors
from service.formats.values import as_json
from service.formats.wire import framed
from service.formats.writer import SchemaUnusableError, WriterSchema
from spark_job.sessions.parsing.avro_columns import AvroColumns
from spark_job.sessions.parsing.column_bytes import views
from spark_job.sessions.parsing.records import read_records
from spark_job.sessions.settings import AssemblySettings


def record(name: str, *of_types: object) -> dict[str, object]:
    fields = [{"name": f"f{number}", "type": each} for number, each in enumerate(of_types)]
    return {"type": "record", "name": name, "fields": fields}


def doubling(levels: int) -> dict[str, object]:
    """A record of two records of two records …, all of nulls: of no byte."""
    found = record("R0", "null")
    for level in range(1, levels):
        found = record(f"R{level}", found, f"R{level - 1}")
    return found


def varint(number: int) -> bytes:
    """As Avro has it: zigzag."""
    return unsigned(number << 1)


def unsigned(number: int) -> bytes:
    found = b""
    while number > 0x7F:
        found, number = found + bytes([number & 0x7F | 0x80]), number >> 7
    return found + bytes([number])


def nested(number: int, levels: int) -> bytes:
    """A message in a message in …, each empty but for the next one."""
    found = b""
    for _ in range(levels):
        found = unsigned(number << 3 | 2) + unsigned(len(found)) + found
    return found


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
CLAIMS = {
    "records of records of null": (doubling(40), b""),
    "an array of records of null": (
        {"type": "array", "items": doubling(11)},
        varint(1_000) + b"\0",
    ),
    "a union of such": (
        {"type": "array", "items": ["null", record("R", doubling(12))]},
        varint(100) + b"\2" * 100 + b"\0",
    ),
    "a record of itself and nulls": (
        record("R", *["null"] * 500, ["null", {"type": "array", "items": "R"}]),
        b"\2\2" * 100 + b"\0" * 100,
    ),
    "an array of nulls": ({"type": "array", "items": "null"}, varint(2**40) + b"\0"),
    "nulls in two blocks": ({"type": "array", "items": "null"}, (varint(900) * 2) + b"\0"),
    "a decimal": (DECIMAL, varint(MOST_DECIMAL_BYTES + 1) + b"\1" * (MOST_DECIMAL_BYTES + 1)),
    "a map of decimals": (
        {"type": "map", "values": DECIMAL},
        b"\2\2k" + varint(MOST_DECIMAL_BYTES + 1) + b"\1" * (MOST_DECIMAL_BYTES + 1) + b"\0",
    ),
}


@pytest.mark.parametrize(
    "of", [{"type": "enum", "name": "E", "symbols": ["A"]}, ["null", "string"], DECIMAL], ids=str
)
def test_why_an_avro_value_is_refused_quotes_no_number_of_it(of: object) -> None:
    """The console shows it to people who may see no event: it masks quoted texts and times alone."""
    card = 4_111_111_111_111_111
    with pytest.raises(ValueError, match=r"such|decimal of over") as refused:
        as_json(framed(1, varint(card)), {1: WriterSchema("AVRO", json.dumps(of))})
    assert str(card) not in str(refused.value)


@pytest.mark.parametrize("name", CLAIMS)
def test_an_avro_value_that_claims_more_than_its_bytes_can_hold_is_refused_by_every_reader(name: str) -> None:
    of, body = CLAIMS[name]
    schema = WriterSchema("AVRO", json.dumps(of))
    with pytest.raises(ValueError, match=r"claims more|decimal of"):
        as_json(framed(1, body), {1: schema})
    plan = plan_of(schema, {}, times_are_text=False)
    with pytest.raises(NotOfSchemaError):
        SingleValue(memoryview(body), 0, len(body), plan)
    bounds, data = views(pa.array([body, body], pa.large_binary()))
    assert not AvroColumns(data, bounds[:-1], bounds[1:], plan, []).good.any()


def test_values_within_the_budget_are_read_by_every_reader() -> None:
    for of, body in [
        ({"type": "array", "items": "null"}, varint(most_values(3)) + b"\0"),
        (DECIMAL, varint(MOST_DECIMAL_BYTES) + b"\1" * MOST_DECIMAL_BYTES),
        (record("R", record("S", "null", "int"), ["null", "S"]), b"\2\2\2"),
    ]:
        schema = WriterSchema("AVRO", json.dumps(of))
        assert as_json(framed(1, body), {1: schema})
        plan = plan_of(schema, {}, times_are_text=False)
        bounds, data = views(pa.array([body], pa.large_binary()))
        assert AvroColumns(data, bounds[:-1], bounds[1:], plan, []).good.all()


@pytest.mark.parametrize(
    "of",
    [
        record("R", {"type": "fixed", "name": "F", "size": -8}),
        record("R", {"type": "fixed", "name": "F", "size": 2**70}),
        record("R", {"type": "fixed", "name": "F", "size": True}),
        record("R", {"type": "fixed", "name": "F", "size": 5_000, "logicalType": "decimal", "precision": 4}),
        record("R", {"type": "bytes", "logicalType": "decimal", "precision": 10**9}),
        record("R", {"type": "enum", "name": "E", "symbols": ["a" * 1_001]}),
        record("R", "R"),
        record("R", record("S", "R")),
    ],
)
def test_an_avro_schema_by_which_nothing_can_be_read_says_so(of: object) -> None:
    with pytest.raises(SchemaUnusableError):
        plan_of(WriterSchema("AVRO", json.dumps(of)), {}, times_are_text=False)


def test_a_record_that_many_others_have_is_planned_once_for_each_place() -> None:
    """Else the plan of a valid schema of some megabytes takes hours, where a field is wanted below two unions."""
    shared = record("S", "string")
    branches = [record(f"R{n}", "S" if n else shared) for n in range(50)]
    schema = WriterSchema("AVRO", json.dumps(record("Root", branches)))
    plan = plan_of(schema, {("f0", "f0", "f0"): "text"}, times_are_text=False)
    assert isinstance(plan.root, Sequence)
    (union,) = plan.root.fields
    assert isinstance(union, Union)
    planned = [each.fields[0] for each in union.branches if isinstance(each, Sequence)]
    assert len(planned) == len(branches)
    assert {id(each) for each in planned} == {id(planned[0])}
    body = varint(7) + varint(3) + b"abc"
    value = SingleValue(memoryview(body), 0, len(body), plan)
    assert value.spans == {("f0", "f0", "f0"): (2, 3)}


def test_a_fixed_of_negative_size_reads_no_bytes_of_the_value_before_it() -> None:
    of = record("R", "string", {"type": "fixed", "name": "F", "size": -8}, "string")
    with pytest.raises(ValueError, match="a fixed of -8 bytes"):
        as_json(framed(1, b"\6abc\2x"), {1: WriterSchema("AVRO", json.dumps(of))})


def test_many_small_blocks_leave_the_columns() -> None:
    schema = WriterSchema("AVRO", json.dumps({"type": "array", "items": "boolean"}))
    plan = plan_of(schema, {}, times_are_text=False)
    bodies = [b"\2\1" * 5_000 + b"\0", b"\2\1" * 5_000]
    bounds, data = views(pa.array(bodies, pa.large_binary()))
    found = AvroColumns(data, bounds[:-1], bounds[1:], plan, [])
    assert found.good.tolist() == [True, False]
    assert np.count_nonzero(found._left) == 2


def proto(text: str) -> WriterSchema:
    return WriterSchema("PROTOBUF", descriptors(f'syntax = "proto3"; {text}', {})[0])


def wide(name: str, fields: int, more: str = "") -> str:
    return f"message {name} {{ {' '.join(f'int32 f{n} = {n};' for n in range(1, fields + 1))} {more} }}"


PROTO_CLAIMS = {
    "two thousand of a thousand defaults": (
        f"message M {{ repeated W w = 1; }} {wide('W', 1_000)}",
        b"\x0a\0" * 2_048,
    ),
    "in a map": (
        f"message M {{ map<int32, W> w = 1; }} {wide('W', 1_000)}",
        b"".join(b"\x0a\2\x08" + bytes([key]) for key in range(128)),
    ),
    "in one another": (wide("M", 100, "M m = 2000;"), nested(2_000, 90)),
    "of optional fields": (
        f"message M {{ repeated W w = 1; }} message W {{ {' '.join(f'optional int32 f{n} = {n};' for n in range(1, 1_001))} }}",
        b"\x0a\0" * 2_048,
    ),
    "large": (f"message M {{ repeated W w = 1; }} {wide('W', 30)}", b"\x0a\0" * 100_000),
}


@pytest.mark.parametrize("name", PROTO_CLAIMS)
def test_a_protobuf_message_that_claims_more_than_its_bytes_can_hold_is_refused_before_it_is_parsed(
    name: str,
) -> None:
    text, body = PROTO_CLAIMS[name]
    schema = proto(text)
    with pytest.raises(ValueError, match="claims more"):
        as_json(framed(1, b"\0" + body), {1: schema})
    records = pa.table({"offset": [0], "ts": [0], "value": pa.array([framed(1, b"\0" + body)], pa.binary())})
    (letter,) = read_records(records, AssemblySettings(format="protobuf"), {1: schema}).letters
    assert letter.detail.endswith("it claims more values than its bytes can hold")


def test_protobuf_messages_within_the_budget_are_read() -> None:
    schema = proto(f"message M {{ repeated W w = 1; }} {wide('W', 300)}")
    for body in (b"", b"\x0a\0" * 3, b"\x0a\4\x08\1\x10\2" * 3):
        assert as_json(framed(1, b"\0" + body), {1: schema})


def test_a_text_for_people_is_bounded_whatever_its_names_take() -> None:
    fields = [{"name": "n" * 1_000, "type": "boolean"}]
    of = {"type": "array", "items": {"type": "record", "name": "R", "fields": fields}}
    with pytest.raises(ValueError, match="too large"):
        as_json(framed(1, varint(2_000) + b"\1" * 2_000 + b"\0"), {1: WriterSchema("AVRO", json.dumps(of))})
