"""Avro in whole columns says what fastavro says, one value at a time: over random schemas, whole values and damaged ones."""

import io
import json
from collections.abc import Iterator
from itertools import count
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from service.formats.avro.plan import Plan, Sequence, Union, plan_of
from service.formats.avro.single import NotOfSchemaError, SingleValue
from service.formats.wire import framed
from service.formats.writer import WriterSchema
from spark_job.sessions.parsing.avro_columns import AvroColumns
from spark_job.sessions.parsing.column_bytes import views
from spark_job.sessions.parsing.records import read_records
from spark_job.sessions.settings import AssemblySettings

RULES = AssemblySettings(format="avro", type_path=("a", "type"), time_path=("time",), time_format="epoch_ms")
LEAVES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    ("null", st.none()),
    ("boolean", st.booleans()),
    ("int", st.integers(-(2**31), 2**31 - 1)),
    ("long", st.integers(-(2**63), 2**63 - 1)),
    ("float", st.floats(width=32, allow_nan=False, allow_infinity=False)),
    ("double", st.floats(allow_nan=False)),
    ("bytes", st.binary(max_size=40)),
    ("string", st.text(max_size=40)),
]


@st.composite
def fields(draw: st.DrawFn, level: int = 0) -> tuple[Any, st.SearchStrategy[Any]]:
    """An Avro type, and values of it."""
    kind = draw(st.integers(0, len(LEAVES) + (3 if level < 2 else -1)))
    if kind < len(LEAVES):
        return LEAVES[kind]
    schema, values = draw(fields(level=level + 1))
    if kind == len(LEAVES):
        return {"type": "array", "items": schema}, st.lists(values, max_size=20)
    if kind == len(LEAVES) + 1:
        return {"type": "map", "values": schema}, st.dictionaries(st.text(max_size=3), values, max_size=4)
    if kind == len(LEAVES) + 2 and schema != "null" and not isinstance(schema, list):
        return ["null", schema], st.none() | values
    return (
        {"type": "record", "name": "R", "fields": [{"name": "x", "type": schema}]},
        st.fixed_dictionaries({"x": values}),
    )


def renamed(schema: Any, number: Iterator[int]) -> Any:
    """The same with another name for each record."""
    match schema:
        case {"type": "record", "name": "R", "fields": [field]}:
            return schema | {
                "name": f"R{next(number)}",
                "fields": [field | {"type": renamed(field["type"], number)}],
            }
        case dict():
            return {
                name: renamed(each, number) if name in ("items", "values") else each
                for name, each in schema.items()
            }
        case list():
            return [renamed(each, number) for each in schema]
    return schema


@st.composite
def logs(draw: st.DrawFn) -> tuple[str, list[dict[str, Any]]]:
    """A schema with the fields that the rules name between others, and some values of it."""
    names = count()
    others = draw(st.lists(fields(), min_size=1, max_size=4))
    texts = st.text(min_size=1, max_size=20).filter(lambda text: "\0" not in text)
    symbols = ["start_event", "entry_event", "end_event"]
    named: list[tuple[str, Any, st.SearchStrategy[Any]]] = [
        (f"o{number}", renamed(schema, names), values) for number, (schema, values) in enumerate(others)
    ]
    of_type = {"type": "enum", "name": "T", "symbols": symbols}
    a = {
        "type": "record",
        "name": "A",
        "fields": [{"name": "n", "type": "int"}, {"name": "type", "type": of_type}],
    }
    named += [
        ("session_key", draw(st.sampled_from(["string", ["null", "string"]])), texts),
        ("a", a, st.fixed_dictionaries({"n": st.integers(0, 300), "type": st.sampled_from(symbols)})),
        ("time", {"type": "long", "logicalType": "local-timestamp-micros"}, st.integers(0, 2**50)),
    ]
    named = draw(st.permutations(named))
    schema = {
        "type": "record",
        "name": "E",
        "fields": [{"name": name, "type": kind} for name, kind, _ in named],
    }
    values = st.fixed_dictionaries({name: values for name, _, values in named})
    return json.dumps(schema), draw(st.lists(values, min_size=1, max_size=8))


def written(text: str, values: list[dict[str, Any]]) -> list[bytes]:
    parsed, bodies = fastavro.parse_schema(json.loads(text)), []
    for value in values:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, value)
        bodies.append(out.getvalue())
    return bodies


def table(values: list[bytes]) -> pa.Table:
    return pa.table(
        {
            "offset": pa.array(range(len(values)), pa.int64()),
            "ts": pa.array([0] * len(values), pa.int64()),
            "value": pa.array(values, pa.binary()),
        }
    )


@settings(max_examples=150, deadline=None)
@given(logs())
def test_the_fields_of_whole_values_are_what_was_written(log: tuple[str, list[dict[str, Any]]]) -> None:
    text, values = log
    bodies = written(text, values)
    records = read_records(
        table([framed(7, body) for body in bodies]), RULES, {7: WriterSchema("AVRO", text)}
    )
    assert [letter.detail for letter in records.letters] == []
    assert records.key.cast(pa.large_string()).to_pylist() == [value["session_key"] for value in values]
    assert records.events.ts.tolist() == [value["time"] // 1000 for value in values]
    kinds = ["start_event", "entry_event", "end_event"]
    assert [kinds[kind] for kind in records.events.kind] == [value["a"]["type"] for value in values]


@settings(max_examples=150, deadline=None)
@given(logs(), st.data())
def test_damaged_values_have_one_verdict_alone_and_among_others(
    log: tuple[str, list[dict[str, Any]]], data: st.DataObject
) -> None:
    text, values = log
    bodies = written(text, values)
    damaged = list(bodies)
    for _ in range(4):
        body = bytearray(data.draw(st.sampled_from(bodies)))
        if body and data.draw(st.booleans()):
            body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
        else:
            del body[data.draw(st.integers(0, len(body))) :]
        damaged.append(bytes(body))
    schema = WriterSchema("AVRO", text)
    wanted = {("session_key",): "text", ("a", "type"): "text", ("time",): "time"}
    plan = plan_of(schema, wanted, times_are_text=False)  # type: ignore[arg-type]
    bounds, raw = views(pa.array(damaged, pa.large_binary()))
    columns = AvroColumns(raw, bounds[:-1], bounds[1:], plan, list(wanted))
    assert columns.good.tolist() == [single(body, plan) for body in damaged]
    assert columns.good[: len(bodies)].all()


def single(body: bytes, plan: Plan) -> bool:
    try:
        SingleValue(memoryview(body), 0, len(body), plan)
    except NotOfSchemaError:
        return False
    return True


class Looked(list[Any]):
    """Branches of a union, with the numbers of those that were looked at."""

    at: set[int]

    def __init__(self, branches: list[Any]) -> None:
        super().__init__(branches)
        self.at = set()

    def __getitem__(self, number: Any) -> Any:
        self.at.add(number)
        return super().__getitem__(number)

    def __iter__(self) -> Iterator[Any]:
        self.at |= set(range(len(self)))
        return super().__iter__()


def test_a_union_costs_the_branches_that_occur_and_not_those_that_its_schema_has() -> None:
    """A schema of some megabytes has a hundred thousand, in each of a thousand fields."""
    branches = [
        {"type": "record", "name": f"R{n}", "fields": [{"name": "key", "type": "string"}]} for n in range(300)
    ]
    text = json.dumps({"type": "record", "name": "E", "fields": [{"name": "of", "type": branches}]})
    wanted = {("of", "key"): "text"}
    plan = plan_of(WriterSchema("AVRO", text), wanted, times_are_text=False)  # type: ignore[arg-type]
    assert isinstance(plan.root, Sequence)
    (union,) = plan.root.fields
    assert isinstance(union, Union)
    union.branches = looked = Looked(union.branches)
    bodies = [b"\x84\4\2a", b"\0\2b", b"\x84\4\2c", b"\xfe\xff\3\2d", b"\1\2e"]
    bounds, raw = views(pa.array(bodies, pa.large_binary()))
    found = AvroColumns(raw, bounds[:-1], bounds[1:], plan, list(wanted))
    assert found.good.tolist() == [True, True, True, False, False]
    assert found.fields["of", "key"].found.tolist() == found.good.tolist()
    assert looked.at == {0, 258}


def test_a_value_that_is_cut_off_anywhere_is_malformed() -> None:
    text = json.dumps(
        {
            "type": "record",
            "name": "E",
            "fields": [
                {"name": "session_key", "type": "string"},
                {"name": "event_type", "type": "string"},
                {"name": "last", "type": {"type": "array", "items": "long"}},
            ],
        }
    )
    (body,) = written(text, [{"session_key": "k", "event_type": "start_event", "last": [1, 2**40]}])
    rules = AssemblySettings(format="avro")
    cut = [framed(7, body[:size]) for size in range(len(body) + 1)]
    records = read_records(table(cut), rules, {7: WriterSchema("AVRO", text)})
    assert np.flatnonzero(records.well_formed).tolist() == [len(body)]


def test_text_that_is_not_utf_8_is_malformed_where_it_is_needed() -> None:
    text = json.dumps(
        {
            "type": "record",
            "name": "E",
            "fields": [{"name": "session_key", "type": "string"}, {"name": "event_type", "type": "string"}],
        }
    )
    values = [framed(7, b"\2\xff\x16start_event"), framed(7, b"\2k\x16start_event")]
    records = read_records(table(values), AssemblySettings(format="avro"), {7: WriterSchema("AVRO", text)})
    assert records.well_formed.tolist() == [False, True]
    assert [letter.detail for letter in records.letters] == ["no readable field session_key"]


def test_a_schema_without_a_field_or_with_another_type_makes_its_records_malformed() -> None:
    fields = [{"name": "session_key", "type": "long"}, {"name": "event_type", "type": "string"}]
    wrong = WriterSchema("AVRO", json.dumps({"type": "record", "name": "E", "fields": fields}))
    lacking = WriterSchema("AVRO", json.dumps({"type": "record", "name": "E", "fields": fields[1:]}))
    other = WriterSchema("JSON", "{}")
    values = [framed(1, b"\2\x16start_event"), framed(2, b"\x16start_event"), framed(3, b"{}")]
    schemas = {1: wrong, 2: lacking, 3: other}
    records = read_records(table(values), AssemblySettings(format="avro"), schemas)
    assert [letter.detail for letter in records.letters] == [
        "schema 1: field session_key has another type",
        "no readable field session_key",
        "schema 3 is JSON, not AVRO",
    ]
