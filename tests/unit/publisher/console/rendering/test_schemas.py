"""Values with a schema are shown decoded; whatever the registry does, there is a page, with the bytes and why."""

import base64
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from publisher.console.rendering import schemas
from publisher.console.rendering.html import Rendering
from publisher.console.rendering.schemas import (
    AGAIN_S,
    MOST_VALUE_BYTES,
    SchemaLookup,
    ShownValue,
    ShownValues,
)
from service.formats.registry.schemas import RegistrySchemas
from service.formats.remembered import SchemaCache
from service.formats.wire import framed
from service.formats.writer import UnusableSchema, WriterSchema
from service.settings import ConsoleSettings, SchemaRegistrySettings
from tests.support.schemas.clicks import AVRO, registered
from tests.support.schemas.registry import Registry, registry

EVENT = {"event_type": "start", "session_key": "<k>", "price_cents": 7, "tags": ["a"], "page": "p"}


@pytest.fixture(name="server")
def _server() -> Iterator[Registry]:
    with registry(own=True) as found:
        yield found
    while _MADE:
        lookup = _MADE.pop()
        lookup.close()
        if lookup._thread is not None:
            lookup._thread.join()
            assert lookup._schemas is None or lookup._schemas.client._rest_client.session.is_closed


_MADE: list[SchemaLookup] = []


def lookup_of(server: Registry, **options: str | int | float | bool) -> SchemaLookup:
    _MADE.append(SchemaLookup(SchemaRegistrySettings(url=server.url, options=options)))
    return _MADE[-1]


def page_of(server: Registry) -> ShownValues:
    return ShownValues(show=True, lookup=lookup_of(server))


def _wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until what went wrong is asked for again."""
    later = time.monotonic() + AGAIN_S
    monkeypatch.setattr(schemas, "time", SimpleNamespace(monotonic=lambda: later))


@pytest.mark.parametrize(
    ("format", "named"),
    [
        ("avro", "Avro, clicks-value version 1, schema 1"),
        ("protobuf", "Protobuf, clicks-value-proto version 1, schema 1"),
        ("json-schema", "JSON Schema, clicks-value-json version 1, schema 1"),
    ],
)
def test_a_value_is_decoded_and_its_schema_named(server: Registry, format: str, named: str) -> None:
    shown = page_of(server).of(registered(server, format)(EVENT))
    assert EVENT.items() <= orjson.loads(shown.text).items()
    assert shown.schema == named


def test_a_schema_of_several_subjects_is_named_by_the_first(server: Registry) -> None:
    encode = registered(server, "avro")
    server.register("other-value", "AVRO", AVRO)
    assert page_of(server).of(encode(EVENT)).schema == "Avro, clicks-value version 1 and 1 more, schema 1"


def test_each_schema_is_asked_for_once_whatever_pages_show_it(server: Registry) -> None:
    value = registered(server, "avro")(EVENT)
    lookup = lookup_of(server)
    for _ in range(3):
        page = ShownValues(show=True, lookup=lookup)
        assert all(page.of(value).text.startswith("{") for _ in range(3))
    assert server.asked.count("GET /schemas/ids/1") == 1
    assert server.asked.count("GET /schemas/ids/1/versions") == 1


def test_only_the_oldest_answer_makes_room(server: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemas, "SchemaCache", partial(SchemaCache, 2 * schemas._UNUSABLE_CHARS))
    lookup = lookup_of(server)
    for schema_id in (1, 2, 3):
        lookup.find(schema_id, 60.0)
    lookup.find(2, 60.0)
    assert [server.asked.count(f"GET /schemas/ids/{schema_id}") for schema_id in (1, 2, 3)] == [1, 1, 1]
    lookup.find(1, 60.0)
    assert server.asked.count("GET /schemas/ids/1") == 2


def test_an_unknown_id_is_shown_as_bytes_and_asked_for_again_later(
    server: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = page_of(server)
    shown = ShownValue("\\x00\\x00\\x00\\x00\\x01x", "not decoded: the registry has no schema 1")
    assert page.of(framed(1, b"x")) == page.of(framed(1, b"x")) == shown
    assert server.asked.count("GET /schemas/ids/1") == 1
    value = registered(server, "avro")(EVENT)
    assert page.of(value).schema == shown.schema
    _wait(monkeypatch)
    assert page.of(value).schema == "Avro, clicks-value version 1, schema 1"


def test_while_the_registry_is_away_bytes_are_shown_and_it_is_not_asked_for_each(
    server: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = registered(server, "avro")(EVENT)
    page = page_of(server)
    page.of(known)
    before = len(server.asked)
    with server.answering(503):
        for schema_id in (7, 8, 9):
            shown = page.of(framed(schema_id, b"\xff"))
            assert shown.text == f"\\x00\\x00\\x00\\x00\\x{schema_id:02x}\\xff".replace("\\x09", "\t")
            assert shown.schema.startswith(f"schema {schema_id}; not decoded: the schema registry at http://")
            assert "503" in shown.schema
        assert len(server.asked) == before + 1
        assert page.of(known).schema == "Avro, clicks-value version 1, schema 1"
    again = page_of(server)
    with server.answering(500):
        assert "not decoded" in again.of(known).schema
    _wait(monkeypatch)
    assert again.of(known).schema == "Avro, clicks-value version 1, schema 1"


def test_an_unexpected_failure_concerns_its_id_alone(
    server: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = registered(server, "avro")(EVENT)
    genuine, asked = RegistrySchemas.fetch, []

    def fetch(self: RegistrySchemas, schema_id: int) -> WriterSchema | UnusableSchema:
        asked.append(schema_id)
        if schema_id == 7:
            raise RuntimeError("odd")
        return genuine(self, schema_id)

    monkeypatch.setattr(RegistrySchemas, "fetch", fetch)
    page = page_of(server)
    for _ in range(2):
        assert page.of(framed(7, b"x")).schema.startswith("schema 7; not decoded: RuntimeError at ")
    assert page.of(value).schema == "Avro, clicks-value version 1, schema 1"
    assert asked == [7, 1]


def test_a_password_that_was_changed_is_read_again(
    server: Registry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    value = registered(server, "avro")(EVENT)
    secret = tmp_path / "registry.toml"
    secret.write_text('"basic.auth.user.info" = "console:former"')
    lookup = SchemaLookup(SchemaRegistrySettings(url=server.url, secret_options_file=secret))
    _MADE.append(lookup)
    page = ShownValues(show=True, lookup=lookup)
    assert "has no schema 7" in page.of(framed(7, b"x")).schema
    server.admit_only("console:present")
    assert "401" in page.of(value).schema
    secret.write_text('"basic.auth.user.info" = "console:present"')
    _wait(monkeypatch)
    assert page.of(value).schema == "Avro, clicks-value version 1, schema 1"


def test_a_page_does_not_wait_for_a_registry_that_hangs(server: Registry) -> None:
    value = registered(server, "avro")(EVENT)
    lookup = lookup_of(server)
    with server.hanging():
        assert lookup.find(1, 0.01).trouble == "the schema registry has not answered yet: load the page again"
        assert lookup.find(2, 0.0).schema is None
    assert lookup.find(1, 60.0).schema is not None
    assert ShownValues(show=True, lookup=lookup).of(value).text.startswith("{")


def test_what_hinders_a_client_is_said(server: Registry) -> None:
    lookup = lookup_of(server, **{"no.such.option": "s3cret"})
    shown = ShownValues(show=True, lookup=lookup).of(framed(1, b""))
    assert "no.such.option" in shown.schema
    assert "s3cret" not in shown.schema


def test_nothing_is_asked_of_what_is_hidden_or_has_no_schema(server: Registry) -> None:
    lookup = lookup_of(server)
    assert ShownValues(show=False, lookup=lookup).of(framed(1, b"x")) == ShownValue("6 bytes, hidden")
    page = ShownValues(show=True, lookup=lookup)
    for value, text in ((b'{"a":1}', '{"a":1}'), (b"\0ab", "\\x00ab"), (None, "null")):
        assert page.of(value) == ShownValue(text)
    assert ShownValues(show=True).of(framed(1, b"x")).schema == ""
    assert server.asked == []


def test_what_would_take_long_is_left_to_the_command(server: Registry) -> None:
    page = page_of(server)
    too_large = page.of(framed(1, bytes(MOST_VALUE_BYTES)))
    assert too_large.schema == "schema 1; too much to decode on a page: use `spark-job decode`"
    encode = registered(server, "json-schema")
    value = encode({"pad": "x" * (MOST_VALUE_BYTES - 100)})
    shown = [page.of(value) for _ in range(20)]
    assert shown[0].text.endswith(" characters)")
    assert shown[-1].schema == "schema 1; too much to decode on a page: use `spark-job decode`"


@pytest.mark.parametrize(
    ("schema", "body", "said"),
    [
        ('{"type": "array", "items": "null"}', b"\x80\x80\x80\x80\x80\x80\x01\0", "claims more values"),
        (
            '{"type": "record", "name": "R", "fields": [{"name": "next", "type": ["null", "R"]}]}',
            b"\2" * 50_000 + b"\0",
            "deeper than 200 levels",
        ),
        ('"string"', b"\x10", "cut off"),
    ],
)
def test_a_value_that_claims_what_it_has_not_is_not_decoded(
    server: Registry, schema: str, body: bytes, said: str
) -> None:
    schema_id = server.register("odd", "AVRO", schema)
    shown = page_of(server).of(framed(schema_id, body))
    assert shown.text.startswith("\\x00")
    assert f"; not decoded: {'it' if 'deeper' in said or 'cut' in said else ''}" in shown.schema
    assert said in shown.schema


def test_a_protobuf_schema_that_nobody_can_read_is_said(server: Registry) -> None:
    server.register("d", "PROTOBUF", base64.b64encode(b"\xff\xff").decode())
    shown = page_of(server).of(framed(1, b"\0"))
    assert shown.text == "\\x00\\x00\\x00\\x00\\x01\\x00"
    assert "; not decoded: " in shown.schema


def test_the_page_of_a_letter_shows_value_and_schema(server: Registry) -> None:
    page = page_of(server)
    value = registered(server, "avro")(EVENT)
    letter: dict[str, Any] = {
        "dead_letter_id": 1,
        "reason": "no_start",
        "state": "open",
        "resolved_batch": None,
        "session_key": "k",
        "event_count": 2,
        "kept_events": 2,
        "topic": "t",
        "partition": 0,
        "first_offset": 1,
        "last_offset": 2,
        "closing_offset": 2,
        "batch_id": 1,
        "created_at": datetime(2026, 1, 2, tzinfo=UTC),
    }
    events = [
        {"offset": n, "ms": 0, "type": None, "value": page.of(each)}
        for n, each in enumerate((value, framed(9, b"")))
    ]
    html = Rendering(ConsoleSettings(show_values=True)).page(
        "letter.html", {"letter": letter, "detail": "", "traceback": None, "events": events}, path="/letter"
    )
    assert "&#34;session_key&#34;:&#34;&lt;k&gt;&#34;" in html
    assert '<small class="dim">Avro, clicks-value version 1, schema 1</small>' in html
    assert '<small class="dim">not decoded: the registry has no schema 9</small>' in html
