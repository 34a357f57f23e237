"""Tasks over events of every format: the same sessions, and what a registry that is away or refuses does to a task."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from service.formats.wire import framed
from service.formats.writer import RegistryAwayError, RegistryRefusedError
from spark_job import OutputEvent, OutputSchema, Session, WithSchema
from spark_job.assembly import rebuild, rows
from spark_job.outputs.schemas import OutputSchemaRefusedError
from spark_job.outputs.session_row import N_FIELDS
from spark_job.outputs.settings import OutputSchemaRules
from spark_job.sessions.settings import AssemblySettings, Format
from tests.support.histories.tasks import kafka, run_task, slice_of, task_settings
from tests.support.reference.model import Record
from tests.support.schemas.clicks import NEWER_AVRO, avro_encoder, proto_class, registered
from tests.support.schemas.registry import Registry, registry
from tests.support.sink import copied

HERE = __name__
OF_VALUE = AssemblySettings(start="start", entry="entry", end="end")
OF_RECORD = replace(OF_VALUE, key_path=None, type_path=None)
AVRO_FORMATS: list[Format] = ["json", "avro", "protobuf", "json-schema"]
FORMATS: list[Format] = [*AVRO_FORMATS, "bytes"]


@pytest.fixture(name="server")
def _server() -> Iterator[Registry]:
    with registry(own=True) as found:
        yield found


@pytest.fixture(name="any_server")
def _any_server() -> Iterator[Registry]:
    """A real registry where one is named (tests/support/schemas/registry.py)."""
    with registry() as found:
        yield found


def events(sessions: int = 5) -> list[dict[str, Any]]:
    """Events of some sessions, one after the other of each in turn."""
    return [
        {
            "event_type": kind,
            "session_key": f"visitor-{number}-é",
            "page": "/cart" if kind == "entry" else None,
            "price_cents": number * 100,
            "tags": ["a"] * number,
        }
        for kind in ("start", "entry", "end")
        for number in range(sessions)
    ]


def clicks(session: Session) -> Iterable[OutputEvent]:
    """A transform that looks into the values."""
    values = [event.value for event in session.events]
    return [OutputEvent("t", {"key": session.key, "sum": sum(value["price_cents"] for value in values)})]


def counted(session: Session) -> Iterable[OutputEvent]:
    """A transform that looks into none."""
    return [OutputEvent("t", {"key": session.key, "types": [event.type for event in session.events]})]


def of_record(event: dict[str, Any], offset: int, value: bytes) -> Record:
    return Record(0, offset, 0, event["session_key"], value, event["event_type"])


def outputs(table: pa.Table) -> list[dict[str, Any]]:
    """What the sessions gave, in the order of their ends."""
    found = table.filter(pa.compute.equal(table.column("kind"), rows.SESSION)).sort_by("last_offset")
    return [json.loads(values_of(fields)[0] or b"") for fields in found.column("fields").to_pylist()]


def values_of(fields: bytes) -> list[bytes | None]:
    """The values of the outputs of a session's row."""
    *_, values, _keys, _headers, _partitions, _timestamps = copied.elements(fields, N_FIELDS - 4)
    return copied.array(values or b"")


def letters(table: pa.Table) -> list[str]:
    return table.filter(pa.compute.equal(table.column("kind"), rows.LETTER)).column("detail").to_pylist()  # type: ignore[no-any-return]


def encoded(server: Registry, format: Format, some: Sequence[dict[str, Any]]) -> list[Record]:
    """Records with these events."""
    plain = [{name: value for name, value in event.items() if value is not None} for event in some]
    if format == "bytes":
        values = [b"\xff\0" + event["session_key"].encode() for event in plain]
    else:
        encode = registered(server, format)
        values = [encode(event) for event in plain]
    return [
        of_record(event, offset, value)
        for offset, (event, value) in enumerate(zip(some, values, strict=True))
    ]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("cut", [1_000, 4], ids=["at once", "in batches of four"])
def test_the_same_sessions_in_every_format_give_the_same_outputs(
    any_server: Registry, tmp_path: Path, format: Format, cut: int
) -> None:
    server = any_server
    some = events()
    rules = replace(OF_RECORD if format == "bytes" else OF_VALUE, format=format)
    settings = task_settings(tmp_path, function=f"{HERE}:counted", registry=server.options())
    records = encoded(server, format, some)
    assert records[0].value is not None
    digest, found, refused = "", [], []
    for start in range(0, len(records), cut):
        of = slice_of(0, rules, start=start, end=start + cut, digest=digest)
        table = run_task(settings, {0: of}, {0: records})
        state = json.loads(
            table.filter(pa.compute.equal(table.column("kind"), rows.PARTITION)).column("detail")[0].as_py()
        )
        digest = state["digest"]
        found += outputs(table)
        refused += letters(table)
    assert refused == []
    assert found == [{"key": f"visitor-{n}-é", "types": ["start", "entry", "end"]} for n in range(5)]


@pytest.mark.parametrize("format", AVRO_FORMATS)
def test_values_are_decoded_for_the_transform(any_server: Registry, tmp_path: Path, format: Format) -> None:
    server = any_server
    settings = task_settings(tmp_path, function=f"{HERE}:clicks", registry=server.options())
    of = slice_of(0, replace(OF_VALUE, format=format))
    table = run_task(settings, {0: of}, {0: encoded(server, format, events())})
    assert (letters(table), outputs(table)) == (
        [],
        [{"key": f"visitor-{n}-é", "sum": 300 * n} for n in range(5)],
    )


def test_bytes_are_not_looked_at_and_have_no_value(server: Registry, tmp_path: Path) -> None:
    settings = task_settings(tmp_path, function=f"{HERE}:clicks")
    of = slice_of(0, replace(OF_RECORD, format="bytes"))
    table = run_task(settings, {0: of}, {0: encoded(server, "bytes", events(1))})
    (detail,) = letters(table)
    assert "use Event.raw" in detail


def test_a_schema_may_change_in_the_middle_of_a_session(server: Registry, tmp_path: Path) -> None:
    some = events(2)
    older = encoded(server, "avro", some)
    newer = avro_encoder(server.register("clicks-value", "AVRO", NEWER_AVRO), NEWER_AVRO)
    records = [*older[:3], *(replace(r, value=newer(some[r.offset] | {"shop": "there"})) for r in older[3:])]
    settings = task_settings(tmp_path, function=f"{HERE}:clicks", registry=server.options())
    table = run_task(settings, {0: slice_of(0, replace(OF_VALUE, format="avro"))}, {0: records})
    assert (letters(table), outputs(table)) == (
        [],
        [{"key": f"visitor-{n}-é", "sum": 300 * n} for n in range(2)],
    )


@pytest.mark.parametrize("size", [4, 8])
def test_a_schema_id_in_a_header_is_put_in_front_of_the_value(
    server: Registry, tmp_path: Path, size: int
) -> None:
    records = [
        replace(each, value=(each.value or b"")[5:], schema_id=(each.value or b"")[1:5].rjust(size, b"\0"))
        for each in encoded(server, "avro", events(2))
    ]
    rules = replace(OF_VALUE, format="avro", schema_id_in_header=True)
    settings = task_settings(tmp_path, function=f"{HERE}:clicks", registry=server.options())
    bad = replace(records[0], offset=99, schema_id=b"\0\0\7")
    table = run_task(settings, {0: slice_of(0, rules)}, {0: [*records, bad]})
    assert outputs(table) == [{"key": f"visitor-{n}-é", "sum": 300 * n} for n in range(2)]
    assert letters(table) == ["no schema id of four or eight bytes in its header"]


def test_what_cannot_be_read_is_a_letter_with_its_bytes(server: Registry, tmp_path: Path) -> None:
    records = encoded(server, "avro", events(1))
    good = records[0].value or b""
    poison = [b"", b"\1" + good[1:], framed(4711, good[5:]), good[:-1], b"{}", None]
    settings = task_settings(tmp_path, function=f"{HERE}:clicks", registry=server.options())
    bad = [Record(0, 10 + at, 0, None, value) for at, value in enumerate(poison)]
    table = run_task(settings, {0: slice_of(0, replace(OF_VALUE, format="avro"))}, {0: [*records, *bad]})
    assert len(outputs(table)) == 1
    details = letters(table)
    assert [detail.split(":")[0] for detail in details] == [
        "not in the wire format",
        "not in the wire format",
        "the registry has no schema 4711",
        "schema 1",
        "not in the wire format",
        "no value",
    ]
    kept = table.filter(pa.compute.equal(table.column("kind"), rows.LETTER)).column("values").to_pylist()
    assert [each[4:] for each in kept[:-1]] == poison[:-1]
    assert server.asked.count("GET /schemas/ids/4711") == 1


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (503, b'{"error_code": 50001, "message": "out of order"}', RegistryAwayError),
        (429, b"{}", RegistryAwayError),
        (401, b'{"error_code": 40101, "message": "who are you?"}', RegistryRefusedError),
        (404, b'{"error_code": 404, "message": "HTTP 404 Not Found"}', RegistryRefusedError),
        (404, b"<html>", RegistryRefusedError),
        (200, b"<html>", RegistryRefusedError),
        (200, b'{"status": "UP"}', RegistryRefusedError),
        (200, b'{"schema": 5}', RegistryRefusedError),
        (200, b"[" * 100_000, RegistryRefusedError),
    ],
)
def test_a_registry_that_is_away_or_refuses_makes_no_letter(
    server: Registry, tmp_path: Path, status: int, body: bytes, error: type[Exception]
) -> None:
    records = encoded(server, "avro", events(1))
    settings = task_settings(tmp_path, function=f"{HERE}:clicks", registry=server.options(timeout=4))
    slices = {0: slice_of(0, replace(OF_VALUE, format="avro"))}
    with server.answering(status, body), pytest.raises(error):
        run_task(settings, slices, {0: records})
    assert len(outputs(run_task(settings, slices, {0: records}))) == 1


def test_open_sessions_are_found_again_with_their_schemas(
    server: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = encoded(server, "avro", events(2))
    monkeypatch.setattr(rebuild, "committed_records", kafka({0: records}))
    settings = task_settings(tmp_path, function=f"{HERE}:clicks", registry=server.options())
    rules = replace(OF_VALUE, format="avro")
    first = run_task(settings, {0: slice_of(0, rules, end=4)}, {0: records})
    state = json.loads(
        first.filter(pa.compute.equal(first.column("kind"), rows.PARTITION)).column("detail")[0].as_py()
    )
    of = slice_of(0, rules, start=4, safe=0, digest=state["digest"])
    again = run_task(replace(settings, cache=str(tmp_path / "lost")), {0: of}, {0: records})
    assert outputs(again) == [{"key": f"visitor-{n}-é", "sum": 300 * n} for n in range(2)]


ORDER = OutputSchema(
    "avro", '{"type": "record", "name": "Order", "fields": [{"name": "key", "type": "string"}]}'
)
ORDER_JSON = OutputSchema(
    "json-schema", '{"title": "Order", "type": "object", "properties": {"key": {"type": "string"}}}'
)
CLICK_PROTO = OutputSchema("protobuf", proto_class())
INCOMPATIBLE = OutputSchema(
    "avro", '{"type": "record", "name": "Order", "fields": [{"name": "other", "type": "string"}]}'
)


def avro_order(session: Session) -> Iterable[OutputEvent]:
    return [OutputEvent("orders", WithSchema({"key": session.key}, ORDER))]


def wrong_order(session: Session) -> Iterable[OutputEvent]:
    return [OutputEvent("orders", WithSchema({"key": 7}, ORDER))]


def all_orders(session: Session) -> Iterable[OutputEvent]:
    return [
        OutputEvent("a", WithSchema({"key": session.key}, ORDER)),
        OutputEvent("j", WithSchema({"key": session.key}, ORDER_JSON)),
        OutputEvent("p", WithSchema(proto_class()(session_key=session.key), CLICK_PROTO)),
        OutputEvent("plain", {"key": session.key}),
    ]


def incompatible(session: Session) -> Iterable[OutputEvent]:
    return [OutputEvent("orders", WithSchema({"other": ""}, INCOMPATIBLE))]


def of_json(server: Registry) -> dict[int, list[Record]]:
    return {0: encoded(server, "json", events(1))}


def test_an_output_has_the_id_of_a_registered_schema_which_is_asked_for_once(
    server: Registry, tmp_path: Path
) -> None:
    schema_id = server.register("orders-value", "AVRO", ORDER.definition)
    settings = task_settings(tmp_path, function=f"{HERE}:avro_order", registry=server.options())
    table = run_task(settings, {0: slice_of(0, OF_VALUE)}, {0: encoded(server, "json", events(3))})
    values = [values_of(each)[0] for each in table.column("fields").to_pylist() if each]
    expected = [
        framed(schema_id, bytes([2 * len(key)]) + key)
        for key in (f"visitor-{n}-é".encode() for n in range(3))
    ]
    assert values == expected
    assert server.asked.count("POST /subjects/orders-value") == 1


def test_a_schema_that_nobody_registered_stops_the_task_in_the_registrys_words(
    server: Registry, tmp_path: Path
) -> None:
    settings = task_settings(tmp_path, function=f"{HERE}:avro_order", registry=server.options())
    with pytest.raises(OutputSchemaRefusedError, match=r"Subject 'orders-value' not found\."):
        run_task(settings, {0: slice_of(0, OF_VALUE)}, of_json(server))


def test_schemas_are_registered_where_that_is_asked_for(server: Registry, tmp_path: Path) -> None:
    rules = OutputSchemaRules(auto_register=True)
    settings = task_settings(
        tmp_path, function=f"{HERE}:all_orders", registry=server.options(), output_schemas=rules
    )
    table = run_task(settings, {0: slice_of(0, OF_VALUE)}, of_json(server))
    assert letters(table) == []
    (values,) = [values_of(each) for each in table.column("fields").to_pylist() if each]
    assert [(value or b"")[:1] for value in values] == [b"\0", b"\0", b"\0", b"{"]
    server.register("orders-value", "AVRO", ORDER.definition)
    server.keep_compatible("orders-value")
    refused = task_settings(
        tmp_path, function=f"{HERE}:incompatible", registry=server.options(), output_schemas=rules
    )
    with pytest.raises(OutputSchemaRefusedError, match="Schema being registered is incompatible"):
        run_task(refused, {0: slice_of(0, OF_VALUE)}, of_json(server))


def test_a_value_that_is_not_of_its_schema_fails_its_session_alone(server: Registry, tmp_path: Path) -> None:
    server.register("orders-value", "AVRO", ORDER.definition)
    settings = task_settings(tmp_path, function=f"{HERE}:wrong_order", registry=server.options())
    (detail,) = letters(run_task(settings, {0: slice_of(0, OF_VALUE)}, of_json(server)))
    assert "output 0: its value is not of its avro schema" in detail


def test_a_registry_that_is_away_is_no_fault_of_the_session(server: Registry, tmp_path: Path) -> None:
    settings = task_settings(tmp_path, function=f"{HERE}:avro_order", registry=server.options(timeout=3))
    with server.answering(503), pytest.raises(RegistryAwayError):
        run_task(settings, {0: slice_of(0, OF_VALUE)}, of_json(server))
