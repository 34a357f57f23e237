"""What a schema registry's client is told, and whole values out of the wire format."""

import base64
import gzip
import json
import tracemalloc
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import orjson
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry.error import SchemaRegistryError

from service.errors import SettingsError
from service.formats.proto_text import descriptors
from service.formats.registry import answers
from service.formats.registry import references as reference_walk
from service.formats.registry.answers import registry_errors
from service.formats.registry.schemas import RegistrySchemas, schemas_of
from service.formats.remembered import SchemaCache
from service.formats.values import decoded, readable
from service.formats.wire import WireFormatError, framed, message_path, split
from service.formats.writer import (
    RegistryAwayError,
    RegistryRefusedError,
    Schemas,
    SchemaUnusableError,
    UnusableSchema,
    WriterSchema,
)
from service.settings import SchemaRegistrySettings, load_settings
from spark_job.sessions.parsing.records import read_records
from spark_job.sessions.settings import AssemblySettings
from tests.support.schemas.clicks import AVRO, avro_encoder, proto_class, proto_file
from tests.support.schemas.registry import Registry, registry
from tests.support.secured.authority import Authority

EVENT = {"event_type": "start", "session_key": "k", "price_cents": 7, "tags": ["a"]}
PROTO = base64.b64encode(proto_file().SerializeToString()).decode()


@pytest.fixture(name="server")
def _server() -> Iterator[Registry]:
    with registry(own=True) as found:
        yield found


def test_an_answer_that_unpacks_to_more_than_any_schema_is_no_schema(server: Registry) -> None:
    bomb = gzip.compress(b'{"schema": "' + b"x" * (500 << 20), 9)
    tracemalloc.start()
    try:
        with server.answering(200, bomb, encoding="gzip"):
            found = RegistrySchemas(server.options()).fetch(1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert isinstance(found, UnusableSchema)
    assert "has over" in str(found)
    assert peak < 150 << 20


def test_an_answer_that_never_ends_is_an_outage(server: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "_LONGEST_BODY_S", 0.0)
    with (
        server.answering(200, b'{"schema": "' + b"x" * 1_000_000),
        pytest.raises(RegistryAwayError, match="not read within"),
    ):
        RegistrySchemas(server.options()).fetch(1)


def fetched(server: Registry, schema_id: int = 1) -> WriterSchema | UnusableSchema:
    """Ask with a client of its own."""
    schemas = RegistrySchemas(server.options())
    try:
        return schemas.fetch(schema_id)
    finally:
        schemas.client.close()


@pytest.mark.parametrize("version", ["1", "latest", "1/../../../config", -1, 0, True, 1.0, [1], 2**70])
def test_a_reference_names_one_version_of_a_subject_for_good(server: Registry, version: object) -> None:
    """It becomes part of a url, with the job's credentials."""
    body = {"schema": AVRO, "references": [{"name": "n", "subject": "s", "version": version}]}
    with server.answering(200, json.dumps(body).encode()):
        found = fetched(server)
    assert found == UnusableSchema("schema 1 has a reference that names no version of a subject")
    assert server.asked == ["GET /schemas/ids/1"]


@pytest.mark.parametrize(
    "place",
    [
        {"subject": "\ud800"},
        {"subject": ".."},
        {"subject": ""},
        {"subject": "s" * 70_000},
        {"name": "n" * 2_000},
    ],
)
def test_a_reference_with_a_name_or_subject_that_is_none_is_not_looked_up(
    server: Registry, place: dict[str, str]
) -> None:
    body = {"schema": AVRO, "references": [{"name": "n", "subject": "s", "version": 1} | place]}
    with server.answering(200, json.dumps(body).encode()):
        assert isinstance(fetched(server), UnusableSchema)
    assert server.asked == ["GET /schemas/ids/1"]


def test_a_kind_of_schema_that_is_no_text_is_no_registrys(server: Registry) -> None:
    with (
        server.answering(200, b'{"schema": "{}", "schemaType": ["AVRO"]}'),
        pytest.raises(RegistryRefusedError, match="is no schema registry"),
    ):
        fetched(server)


def test_references_are_looked_up_only_until_they_are_too_large(
    server: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference_walk, "MAX_CHARS", 1_000)
    references = {}
    for number in range(20):
        text = json.dumps({"type": "fixed", "name": f"F{number}", "size": 1, "doc": "x" * 300})
        server.register(f"f{number}", "AVRO", text)
        references[f"F{number}"] = (f"f{number}", 1)
    schema_id = server.register("all", "AVRO", '"F0"', references)
    before = len(server.asked)
    found = fetched(server, schema_id)
    assert found == UnusableSchema(f"schema {schema_id} has over 1000 characters")
    assert len(server.asked) - before <= 4


def test_a_schema_with_a_flood_of_references_is_no_schema(server: Registry) -> None:
    references = [{"name": f"n{n}", "subject": "s", "version": 1} for n in range(20_000)]
    body = {"schema": AVRO, "references": references}
    with server.answering(200, json.dumps(body).encode()):
        found = fetched(server)
    assert found == UnusableSchema("schema 1 has over 200 references")


def test_what_is_made_of_schemas_is_forgotten_with_those_that_were_used_longest_ago() -> None:
    cache: SchemaCache[str, str] = SchemaCache(10)
    assert [cache.put(key, key.upper(), 4) for key in "ab"] == [False, False]
    assert cache.get("a") == "A"
    assert cache.put("c", "C", 4)
    assert [cache.get(key) for key in "abc"] == ["A", None, "C"]
    assert cache.put("large", "one", 100)
    assert list(cache) == ["large"]
    cache.put("large", "again", 1)
    cache.put("small", "too", 9)
    assert [cache.get(key) for key in ("large", "small")] == ["again", "too"]


def test_a_value_is_split_and_put_together() -> None:
    assert split(framed(2**32 - 1, b"x")) == (2**32 - 1, b"x")
    for wrong in (b"", b"\0\0\0\0", b"\1\0\0\0\7x"):
        with pytest.raises(WireFormatError):
            split(wrong)


@pytest.mark.parametrize(
    ("body", "path"), [(b"\0x", (0,)), (b"\2\2x", (1,)), (b"\4\2\6x", (1, 3)), (b"\2\x80\1x", (64,))]
)
def test_the_path_to_a_protobuf_message(body: bytes, path: tuple[int, ...]) -> None:
    assert message_path(body) == (path, b"x")


@pytest.mark.parametrize("body", [b"", b"\2", b"\2\x80", b"\1", b"\xff\xff\xff\xff\x0f", b"\x80" * 20])
def test_a_path_that_is_none(body: bytes) -> None:
    with pytest.raises(WireFormatError):
        message_path(body)


def test_values_of_every_kind_are_decoded() -> None:
    schemas: Schemas = {
        1: WriterSchema("AVRO", AVRO),
        2: WriterSchema("PROTOBUF", PROTO),
        3: WriterSchema("JSON", "{}"),
        4: UnusableSchema("the registry has no schema 4"),
    }
    values = [
        avro_encoder(1)(EVENT),
        framed(2, b"\2\2" + proto_class()(**EVENT).SerializeToString()),
        framed(3, orjson.dumps(EVENT)),
    ]
    unset = {"page": None, "at": None, "event_id": None}
    expected = [EVENT | unset, EVENT | {"page": "", "event_id": ""}, EVENT]
    assert [decoded(value, schemas) for value in values] == expected
    assert [json.loads(readable(value, schemas) or "") for value in values] == expected
    for wrong in (framed(4, b""), b"{}", framed(1, b"\2"), framed(2, b"\2\2\xff"), framed(3, b"{")):
        assert readable(wrong, schemas) is None
        with pytest.raises((ValueError, SchemaUnusableError)):
            decoded(wrong, schemas)


def test_a_schema_is_asked_for_once_with_its_references(server: Registry) -> None:
    inner = '{"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "string"}]}'
    server.register("inner", "AVRO", inner)
    outer = '{"type": "record", "name": "Outer", "fields": [{"name": "inner", "type": "Inner"}]}'
    schema_id = server.register("outer", "AVRO", outer, {"Inner": ("inner", 1)})
    schemas = RegistrySchemas(server.options())
    assert schemas[schema_id] == WriterSchema("AVRO", outer, (("Inner", inner),))
    assert decoded(framed(schema_id, b"\2k"), schemas) == {"inner": {"x": "k"}}
    assert schemas[99] == schemas[99] == UnusableSchema("the registry has no schema 99", may_come=True)
    assert (
        server.asked.count(f"GET /schemas/ids/{schema_id}") == server.asked.count("GET /schemas/ids/99") == 1
    )
    schemas.client.close()


def test_a_protobuf_schema_that_a_registry_gives_as_text_is_compiled_with_its_references(
    server: Registry,
) -> None:
    common = 'syntax = "proto3"; package shop; enum Kind { START = 0; END = 1; }'
    text = (
        'syntax = "proto3"; package shop; import "shop/common.proto"; import "google/protobuf/timestamp.proto";'
        " message Other {} message Click { Kind kind = 1; google.protobuf.Timestamp at = 2; }"
    )
    server.register("common", "PROTOBUF", common)
    schema_id = server.register("clicks", "PROTOBUF", text, {"shop/common.proto": ("common", 1)})
    schemas = RegistrySchemas(server.options())
    value = framed(schema_id, b"\2\2" + b"\x08\1" + b"\x12\2\x08\7")
    assert decoded(value, schemas) == {"kind": "END", "at": datetime(1970, 1, 1, 0, 0, 7, tzinfo=UTC)}
    schemas.client.close()


@pytest.mark.parametrize(
    "name", ["@{folder}/secret", "-v", "/etc/passwd", "../x", "a\0b", "x" * 300, "the schema.proto"]
)
def test_a_name_out_of_the_registry_reaches_no_command_line_and_no_path(
    server: Registry, tmp_path: Path, name: str
) -> None:
    name = name.format(folder=tmp_path)
    (tmp_path / "secret").write_text("s3cret", "utf-8")
    inner = 'syntax = "proto3"; package shop; message Inner { string k = 1; }'
    server.register("a", "PROTOBUF", inner)
    imports = name.replace("\0", "\\000")
    text = f'syntax = "proto3"; package shop; import "{imports}"; message P {{ Inner inner = 1; }}'
    schema_id = server.register("p", "PROTOBUF", text, {name: ("a", 1)})
    schemas = RegistrySchemas(server.options())
    try:
        # Read, or refused in words; whichever it is, nothing of the machine is in it.
        assert decoded(framed(schema_id, b"\0\x0a\3\x0a\1k"), schemas) == {"inner": {"k": "k"}}
    except SchemaUnusableError as error:
        assert "s3cret" not in str(error)  # noqa: PT017
        assert name not in ("-v", "@" + str(tmp_path / "secret"))
    schemas.client.close()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('syntax = "proto3"; message P { string k = 0; }', "^protoc says: source/schema.proto:1:.*positive"),
        ('syntax = "proto3"; import "none.proto";', "protoc says: .*none.proto"),
        ('syntax = "proto3"; message P' + " { message P" * 1_000, "protoc says: "),
        (
            'syntax = "proto3";' + " " * (1 << 19),
            "its text, or one that it refers to, has over 524288 characters",
        ),
        # Some gigabytes of full names.
        (
            f'syntax = "proto3"; message {"P" * 250_000} {{ {" ".join(f"int32 f{n} = {n};" for n in range(1, 12_000))} }}',
            "protoc says: .*bad_alloc",
        ),
    ],
)
def test_a_protobuf_text_that_cannot_be_compiled_is_unusable_in_the_compilers_words(
    server: Registry, text: str, words: str
) -> None:
    schema_id = server.register("p", "PROTOBUF", text)
    schemas = RegistrySchemas(server.options())
    with pytest.raises(SchemaUnusableError, match=words):
        decoded(framed(schema_id, b"\0"), schemas)
    schemas.client.close()


LONG = "l" * 60_000


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            f"enum E {{ {LONG} = 0; {' '.join(f'a{n} = 0;' for n in range(1_000))} }}",
            '"a0" uses the same enum value as "ll',
        ),
        (
            f"message {LONG} {{ message B {{}} {' '.join(f'B f{n} = {n};' for n in range(1, 1_000))} }}",
            "out: File too large",
        ),
    ],
    ids=["its words", "its descriptor"],
)
def test_a_protobuf_text_fills_no_memory_by_what_a_compiler_writes_of_it(text: str, words: str) -> None:
    """It writes a long name as often as there are places for it: 60 MB of it here, of 75 KB."""
    tracemalloc.start()
    try:
        with pytest.raises(SchemaUnusableError, match=f"^protoc says: .*{words}"):
            descriptors(f'syntax = "proto3"; {text}', {})
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("compiler", "kind"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", RegistryAwayError),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", RegistryAwayError),
        ("raise MemoryError", RegistryAwayError),
        ("import os; os.open('/none', 0)", RegistryAwayError),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", SchemaUnusableError),
        ("return 1", SchemaUnusableError),
    ],
)
def test_a_compiler_that_is_ended_says_nothing_of_the_schema(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiler: str, kind: type[Exception]
) -> None:
    package = tmp_path / "grpc_tools"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "_protoc_compiler.py").write_text(f"def run_main(arguments):\n    {compiler}\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(kind):
        descriptors('syntax = "proto3"; message P { string k = 1; }', {})


CONNECT = (
    'syntax = "proto3"; package shop; import "confluent/meta.proto"; import "confluent/type/decimal.proto";'
    ' import "google/type/date.proto"; import "google/protobuf/timestamp.proto";'
    ' message Order { option (confluent.message_meta) = { doc: "an order" }; string k = 1;'
    " confluent.type.Decimal price = 2; google.type.Date day = 3; google.protobuf.Timestamp at = 4; }"
)
"""As Kafka Connect registers it: its imports are in no registry, or there as anybody wrote them."""


@pytest.mark.parametrize("as_text", [True, False])
def test_protobuf_schemas_with_the_imports_that_clients_have_built_in_are_read(
    server: Registry, as_text: bool
) -> None:
    descriptor, _ = descriptors(CONNECT, {})
    timestamp = 'syntax = "proto3"; package google.protobuf; message Timestamp { int64 seconds = 1; int32 nanos = 2; }'
    server.register("ts", "PROTOBUF", timestamp if as_text else descriptors(timestamp, {})[0])
    schema_id = server.register(
        "p", "PROTOBUF", CONNECT if as_text else descriptor, {"google/protobuf/timestamp.proto": ("ts", 1)}
    )
    schemas = RegistrySchemas(server.options())
    value = framed(schema_id, b"\0\x0a\1k\x22\2\x08\7")
    assert decoded(value, schemas) == {"k": "k", "at": datetime(1970, 1, 1, 0, 0, 7, tzinfo=UTC)}
    schemas.client.close()


def test_a_protobuf_schema_is_compiled_only_where_a_value_is_read_by_it(
    server: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    schema_id = server.register("p", "PROTOBUF", 'syntax = "proto3"; message Q { string k = 1; }')
    schemas = RegistrySchemas(server.options())
    records = pa.table({"offset": [0], "ts": [0], "value": pa.array([framed(schema_id, b"\0")], pa.binary())})
    found = read_records(records, AssemblySettings(format="avro"), schemas)
    assert [letter.detail for letter in found.letters] == [f"schema {schema_id} is PROTOBUF, not AVRO"]
    schemas.client.close()


def test_without_a_compiler_a_registry_that_gives_only_texts_is_refused_and_the_extra_named(
    server: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    schema_id = server.register("p", "PROTOBUF", 'syntax = "proto3"; message P { string k = 1; }')
    schemas = RegistrySchemas(server.options())
    with pytest.raises(RegistryRefusedError, match=r"spark-outbox\[protobuf-text\]"):
        decoded(framed(schema_id, b"\0"), schemas)
    schemas.client.close()


def test_a_registry_that_is_not_there_is_away() -> None:
    with registry(own=True) as server:
        options = server.options()
    schemas = RegistrySchemas(options)
    with pytest.raises(RegistryAwayError, match="does not answer"):
        schemas[1]
    schemas.client.close()


@pytest.mark.parametrize("status", [400, 503])
def test_what_a_registry_says_is_told_as_far_as_people_read_it(status: int) -> None:
    """Its words go through the worker's text, Spark's log and the job's, at each attempt."""
    said = SchemaRegistryError(status, 50_001, "so it is, " + "x" * 5_000_000)
    with pytest.raises((RegistryAwayError, RegistryRefusedError)) as told, registry_errors("http://here"):
        raise said
    assert str(told.value).startswith(
        f"the schema registry at http://here answers HTTP {status}, code 50001: so it is, xxx"
    )
    assert len(str(told.value)) < 3_000


def test_an_option_that_the_client_does_not_know_is_refused_without_its_value() -> None:
    with pytest.raises(RegistryRefusedError, match=r"no\.such\.option") as caught:
        RegistrySchemas({"url": "http://localhost:1", "no.such.option": "s3cret"})
    assert "s3cret" not in str(caught.value)


def test_secrets_come_from_a_file_and_are_never_printed(tmp_path: Path) -> None:
    file = tmp_path / "secret.toml"
    file.write_text('"basic.auth.user.info" = "job:s3cret"\n', "utf-8")
    settings = SchemaRegistrySettings(
        url="http://registry:8081", options={"basic.auth.user.info": "other:0ther"}, secret_options_file=file
    )
    assert settings.client() == {
        "url": "http://registry:8081",
        "timeout": 5,
        "max.retries": 1,
        "retries.wait.ms": 500,
        "basic.auth.user.info": "job:s3cret",
    }
    assert "s3cret" not in repr(settings)
    assert "0ther" not in repr(settings)
    assert SchemaRegistrySettings().client() == {}
    with pytest.raises(SettingsError, match="secret_options_file"):
        SchemaRegistrySettings(url="http://r", secret_options_file=tmp_path / "absent").client()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[source]\nformat = "avro"\n', "needs [schema_registry] url"),
        ('[source]\nformat = "bytes"\n', "[session] names fields of them: key = '$.session_key'"),
        ('[source]\nschema_id = "header:id"\n', "format 'json' has no schemas"),
        ('[source]\nschema_id = "id"\n', "`payload` or `header:NAME`"),
        ('[schema_registry]\nurl = "https://u:s3cret@h"\n', "secret_options_file"),
        ('[schema_registry]\nurl = "registry:8081"\n', "is not http:// or https://"),
    ],
)
def test_settings_that_contradict_each_other_are_named(tmp_path: Path, text: str, expected: str) -> None:
    file = tmp_path / "outbox.toml"
    file.write_text(text, "utf-8")
    with pytest.raises(SettingsError) as caught:
        load_settings(file)
    assert expected in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_options_come_from_the_environment_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OUTBOX_SCHEMA_REGISTRY__URL", "http://h")
    monkeypatch.setenv("OUTBOX_SCHEMA_REGISTRY__OPTIONS", '{"max.retries": 7}')
    found = load_settings().schema_registry.client()
    assert (found["url"], found["max.retries"]) == ("http://h", 7)


def test_a_certificate_that_was_replaced_is_read_by_a_new_client(tmp_path: Path) -> None:
    options = {
        "url": "https://registry.invalid",
        "ssl.ca.location": str(Authority(tmp_path / "authority").certificate),
    }
    first = schemas_of(options)
    assert schemas_of(dict(options)) is first
    Authority(tmp_path / "authority")
    second = schemas_of(options)
    assert second is not first
    for each in (first, second):
        each.client.close()
