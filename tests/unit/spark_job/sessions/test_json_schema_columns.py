"""JSON with a schema is read as Confluent's own deserializer reads it, and judged as JSON without one: over random documents."""

import json
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import given, settings
from hypothesis import strategies as st

from service.formats.values import decoded
from service.formats.wire import HEAD_BYTES, split
from service.formats.writer import WriterSchema
from spark_job.sessions.parsing.records import Records, read_records
from spark_job.sessions.settings import AssemblySettings

RULES = AssemblySettings(
    format="json-schema", type_path=("a", "type"), time_path=("time",), time_format="epoch_ms"
)
OF_JSON = AssemblySettings(type_path=("a", "type"), time_path=("time",), time_format="epoch_ms")
KINDS = ["start_event", "entry_event", "end_event"]
TEXTS = st.text(max_size=20)
LEAVES: list[tuple[str, st.SearchStrategy[Any]]] = [
    ("null", st.none()),
    ("boolean", st.booleans()),
    ("integer", st.integers(-(2**53), 2**53)),
    ("number", st.floats(allow_nan=False, allow_infinity=False)),
    ("string", TEXTS),
]
WHERE = SerializationContext("t", MessageField.VALUE)

Typed = tuple[dict[str, Any], st.SearchStrategy[Any]]


@st.composite
def types(draw: st.DrawFn, level: int = 0) -> Typed:
    """A schema, and documents of it."""
    kind = draw(st.integers(0, len(LEAVES) + (1 if level < 2 else -1)))
    if kind < len(LEAVES):
        name, values = LEAVES[kind]
        return {"type": name}, values
    schema, values = draw(types(level=level + 1))
    if kind == len(LEAVES):
        return {"type": "array", "items": schema}, st.lists(values, max_size=5)
    return {"type": "object", "properties": {"x": schema}}, st.fixed_dictionaries({}, optional={"x": values})


@dataclass(frozen=True)
class Log:
    """A schema, and documents of it as Confluent's serializer writes them."""

    text: str
    documents: list[dict[str, Any]]
    records: list[bytes]
    schema_id: int

    def read(self, records: list[bytes]) -> Records:
        """What the assembler reads of records behind a head."""
        return read_records(table(records), RULES, {self.schema_id: WriterSchema("JSON", self.text)})


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """Documents with the fields that the rules name between others."""
    others = draw(st.lists(types(), min_size=1, max_size=4))
    properties = {f"o{at}": schema for at, (schema, _) in enumerate(others)}
    key = st.text(min_size=1, max_size=20).filter(lambda text: "\0" not in text)
    strategies: dict[str, st.SearchStrategy[Any]] = {
        "session_key": key,
        "a": st.fixed_dictionaries({"n": st.integers(0, 300), "type": st.sampled_from(KINDS)}),
        "time": st.integers(0, 2**40),
    } | {f"o{at}": values for at, (_, values) in enumerate(others)}
    properties |= {"session_key": {"type": "string"}, "a": {"type": "object"}, "time": {"type": "integer"}}
    text = json.dumps({"type": "object", "title": "E", "properties": properties})
    order = draw(st.permutations(sorted(strategies)))
    strategy = st.fixed_dictionaries({name: strategies[name] for name in order})
    documents = draw(st.lists(strategy, min_size=1, max_size=6))
    client = SchemaRegistryClient.new_client({"url": "mock://"})
    serialize = JSONSerializer(text, client)
    records: list[bytes] = [serialize(document, WHERE) for document in documents]
    return Log(text, documents, records, split(records[0])[0])


def table(values: list[bytes]) -> pa.Table:
    return pa.table(
        {
            "offset": pa.array(range(len(values)), pa.int64()),
            "ts": pa.array([0] * len(values), pa.int64()),
            "value": pa.array(values, pa.binary()),
        }
    )


@settings(max_examples=50)
@given(logs())
def test_the_fields_of_documents_are_what_the_reference_reads(log: Log) -> None:
    reference = JSONDeserializer(log.text)
    read = [reference(record, WHERE) for record in log.records]
    assert read == log.documents
    records = log.read(log.records)
    assert [letter.detail for letter in records.letters] == []
    assert records.key.cast(pa.large_string()).to_pylist() == [each["session_key"] for each in read]
    assert records.events.ts.tolist() == [each["time"] for each in read]
    assert [KINDS[kind] for kind in records.events.kind] == [each["a"]["type"] for each in read]
    schemas = {log.schema_id: WriterSchema("JSON", log.text)}
    assert [decoded(record, schemas) for record in log.records] == read


@settings(max_examples=50)
@given(logs(), st.data())
def test_damaged_documents_have_the_verdict_of_json_without_a_schema(log: Log, data: st.DataObject) -> None:
    damaged = list(log.records)
    for _ in range(6):
        body = bytearray(data.draw(st.sampled_from(log.records))[HEAD_BYTES:])
        if data.draw(st.booleans()):
            body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
        else:
            del body[data.draw(st.integers(0, len(body))) :]
        damaged.append(log.records[0][:HEAD_BYTES] + bytes(body))
    records = log.read(damaged)
    expected = read_records(table([record[HEAD_BYTES:] for record in damaged]), OF_JSON)
    assert records.well_formed.tolist() == expected.well_formed.tolist()
    assert records.key.to_pylist() == expected.key.to_pylist()
    without = [letter.detail for letter in expected.letters]
    assert [letter.detail.removeprefix(f"schema {log.schema_id}: ") for letter in records.letters] == without
