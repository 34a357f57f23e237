"""What a registry answers about one id is a verdict on that id; and a Protobuf schema is read by its text where it gives no descriptor."""

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from service.formats.proto_text import descriptors
from service.formats.protobuf import decode, message_class
from service.formats.registry.schemas import RegistrySchemas
from service.formats.writer import RegistryAwayError, RegistryRefusedError, UnusableSchema, WriterSchema
from tests.support.schemas.clicks import AVRO
from tests.support.schemas.registry import Registry, registry

COMMON = (
    'syntax = "proto2"; package shop; import "google/type/money.proto"; enum Size { S = 3; L = 7; }'
    " message Item { required string name = 1; optional google.type.Money price = 2; optional int32 count = 3 [default = 5];"
    " optional Size size = 4; optional group Extra = 5 { optional bool on = 1; } extensions 100 to 199; }"
)
CLICK = (
    'syntax = "proto3"; package shop; import "shop/common.proto"; import "google/protobuf/timestamp.proto";'
    " enum Kind { START = 0; END = 7; } message Other { bool first = 1; } message Click { Kind kind = 1; optional int32 maybe = 2;"
    " google.protobuf.Timestamp at = 3; map<string, Item> items = 4; repeated sint64 packed = 5; oneof one { string text = 6;"
    " bytes raw = 7; } Click inner = 8; message Nested { fixed32 x = 1; } repeated Nested nested = 9;"
    ' double ratio = 10 [json_name = "other"]; repeated Kind kinds = 11 [packed = false]; }'
)
PLACE = "shop/common.proto"


@pytest.fixture(name="server")
def _server() -> Iterator[Registry]:
    with registry(own=True) as found:
        yield found


def fetched(server: Registry, schema_id: int) -> WriterSchema | UnusableSchema:
    """Ask with a client of its own."""
    schemas = RegistrySchemas(server.options())
    try:
        return schemas.fetch(schema_id)
    finally:
        schemas.client.close()


def answer(code: int | None) -> bytes:
    return json.dumps(
        {"error_code": code, "message": "so it is"} if code else {"message": "so it is"}
    ).encode()


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (404, 40403, UnusableSchema("the registry has no schema 1", may_come=True)),
        (404, 40401, True),
        (404, 40402, True),
        (400, 400, False),
        (400, 40001, False),
        (409, 409, False),
        (422, 422, False),
        (422, 42201, False),
        (422, 42205, False),
        (404, 404, RegistryRefusedError),
        (404, None, RegistryRefusedError),
        (400, None, RegistryRefusedError),
        (422, 5, RegistryRefusedError),
        (401, 40101, RegistryRefusedError),
        (403, 40301, RegistryRefusedError),
        (407, 407, RegistryRefusedError),
        (405, 405, RegistryRefusedError),
        (408, 408, RegistryAwayError),
        (425, 425, RegistryAwayError),
        (429, 42901, RegistryAwayError),
        (500, 50001, RegistryAwayError),
        (503, None, RegistryAwayError),
    ],
)
def test_an_answer_about_an_id_is_a_verdict_on_it(
    server: Registry, status: int, code: int | None, expected: UnusableSchema | bool | type[Exception]
) -> None:
    """True and False: whether the schema may come."""
    schema_id = server.register("a", "AVRO", AVRO)
    with server.answering(status, answer(code), to="/schemas/ids/"):
        if isinstance(expected, type):
            with pytest.raises(expected, match=f"HTTP {status}"):
                fetched(server, schema_id)
            return
        if isinstance(expected, bool):
            why = f"the registry does not give schema 1: HTTP {status}, code {code}: so it is"
            expected = UnusableSchema(why, may_come=expected)
        assert fetched(server, schema_id) == expected


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (404, 40401, ("which the registry does not have", True)),
        (404, 40402, ("which the registry does not have", True)),
        (422, 42202, ("which the registry does not give: HTTP 422, code 42202: so it is", False)),
        (400, 400, ("which the registry does not give: HTTP 400, code 400: so it is", False)),
        (404, 404, RegistryRefusedError),
        (403, 40301, RegistryRefusedError),
        (500, 50001, RegistryAwayError),
    ],
)
@pytest.mark.parametrize("kind", ["AVRO", "PROTOBUF"])
def test_an_answer_about_a_reference_is_a_verdict_on_the_id(
    server: Registry, kind: str, status: int, code: int, expected: tuple[str, bool] | type[Exception]
) -> None:
    server.register("inner", kind, "inner")
    schema_id = server.register("outer", kind, "outer", {"i": ("inner", 1)})
    with server.answering(status, answer(code), to="/subjects/"):
        if isinstance(expected, type):
            with pytest.raises(expected, match=f"HTTP {status}"):
                fetched(server, schema_id)
            return
        words, may_come = expected
        why = f"schema {schema_id} refers to 'i', version 1 of subject 'inner', {words}"
        assert fetched(server, schema_id) == UnusableSchema(why, may_come)


@pytest.mark.parametrize("to", ["format=serialized", "/schemas/ids/2?"])
@pytest.mark.parametrize(
    ("status", "code"),
    [(400, 400), (404, 40403), (404, None), (406, None), (422, 42201), (500, 500), (501, 501)],
)
def test_a_schema_without_a_descriptor_is_read_by_its_text(
    server: Registry, to: str, status: int, code: int | None
) -> None:
    """Karapace's issue 1263: so it is for each schema with a reference of its own, but not for the reference."""
    server.register("common", "PROTOBUF", COMMON)
    schema_id = server.register("click", "PROTOBUF", CLICK, {PLACE: ("common", 1)})
    with server.answering(status, answer(code), to=to):
        assert fetched(server, schema_id) == WriterSchema("PROTOBUF", CLICK, ((PLACE, COMMON),))


@pytest.mark.parametrize(
    ("status", "error"),
    [(401, RegistryRefusedError), (403, RegistryRefusedError), (407, RegistryRefusedError)]
    + [(each, RegistryAwayError) for each in (408, 425, 429)],
)
def test_a_refusal_or_an_outage_is_one_for_a_descriptor_too(
    server: Registry, status: int, error: type[Exception]
) -> None:
    schema_id = server.register("click", "PROTOBUF", 'syntax = "proto3";')
    with server.answering(status, answer(None), to="format=serialized"), pytest.raises(error):
        fetched(server, schema_id)


@pytest.mark.parametrize("status", [406, 500])
def test_without_a_compiler_a_descriptor_that_fails_for_a_while_is_waited_for(
    server: Registry, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """Else one bad answer would end a job that never needed one."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    schema_id = server.register("click", "PROTOBUF", 'syntax = "proto3";')
    with server.answering(status, answer(50001), to="format=serialized"):
        if status == 406:
            assert isinstance(fetched(server, schema_id), WriterSchema)
            return
        with pytest.raises(RegistryAwayError, match=r"so it is\. .*`protobuf-text`"):
            fetched(server, schema_id)


def bodies(schema: WriterSchema) -> Iterator[bytes]:
    """Values of the schema, and what is almost one."""
    rng = random.Random(35)
    made = message_class(schema, (1,))
    for _ in range(100):
        message: Any = made(
            kind=rng.choice([0, 7, 99]), packed=rng.choices([-1, 0, 2**60], k=rng.randrange(4))
        )
        if rng.random() < 0.5:
            message.maybe = rng.choice([0, -5])
            message.at.seconds = rng.choice([0, 7, 2**62])
            message.items["k"].name = "n"
            message.items["k"].price.units = 3
        if rng.random() < 0.5:
            message.text = "é"
            message.inner.raw = b"\xff"
            message.inner.nested.add(x=1)
            message.inner.items["l"].extra.on = True
            message.inner.items["l"].size = 7
            message.kinds.extend([7, 0, 5])
        body = message.SerializePartialToString()
        yield body
        at = rng.randrange(len(body) + 1)
        yield body[:at]
        yield body[:at] + bytes([rng.randrange(256)]) + body[at + 1 :]


def test_text_and_descriptor_of_one_schema_decode_alike() -> None:
    """A descriptor may fail now and then, so another worker, or a rebuild, reads the same records by the text, or by a mixture of both."""
    descriptor, references = descriptors(CLICK, {PLACE: COMMON})
    schemas = [
        WriterSchema("PROTOBUF", text, ((PLACE, common),))
        for text in (descriptor, CLICK)
        for common in (references[PLACE], COMMON)
    ]
    read, refused = 0, 0
    for body in bodies(schemas[0]):
        found = set()
        for schema in schemas:
            try:
                found.add(repr(decode(schema, (1,), body)))
            except ValueError as error:
                found.add(f"refused: {error}")
        assert len(found) == 1
        refused += found.pop().startswith("refused")
        read += 1
    assert 20 < refused < read - 100
