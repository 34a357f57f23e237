"""A manifest is read back as it was written, and nothing else is taken for one."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import orjson
import pytest

from publisher.archive.files import ArchiveDamagedError
from publisher.archive.manifest import DataFile, Manifest, Origin, decode, digest_of, name_of

_AT = datetime(2026, 1, 31, 1, 2, 3, 456_789, tzinfo=UTC)
_FILE = DataFile(
    name="day=2026-01-31/session_output_p00000001-0000-0123456789abcdef.parquet",
    bytes=10,
    sha256="0" * 64,
    rows_sha256="1" * 64,
    rows=1,
    sessions=2,
    outputs=3,
    output_bytes=4,
    first_batch=10_000,
    last_batch=10_001,
    committed_from=_AT,
    committed_to=_AT,
)
_MANIFEST = Manifest(
    outbox_uuid=UUID(int=1),
    archive_id=UUID(int=2),
    partition="session_output_p00000001",
    from_batch=10_000,
    to_batch=19_999,
    schema_revision="0019",
    archived_at=_AT,
    origin=Origin(system_identifier=7_000_000_000_000_000_000, database_oid=5, timeline=1),
    files=(_FILE, _FILE),
)


def test_it_is_read_back_as_it_was_written() -> None:
    assert decode(_MANIFEST.encode()) == _MANIFEST
    assert decode(_MANIFEST.encode()).encode() == _MANIFEST.encode()
    assert (_MANIFEST.total("rows"), _MANIFEST.total("output_bytes")) == (2, 8)
    assert name_of(_MANIFEST).startswith("_manifests/session_output_p00000001-")


def test_one_from_before_the_origin_was_noted_keeps_its_digest() -> None:
    document = orjson.loads(_MANIFEST.encode())
    del document["origin"]
    before = orjson.dumps(document, option=orjson.OPT_INDENT_2)
    found = decode(before)
    assert (found.origin, digest_of(found.encode())) == (None, digest_of(before))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("format", 2),
        ("partition", "batch"),
        ("from_batch", -1),
        ("from_batch", "1"),
        ("outbox_uuid", "x"),
        ("another", 1),
        ("files", None),
        ("files", [{"name": "x"}]),
    ],
)
def test_another_value_is_damage(name: str, value: Any) -> None:
    with pytest.raises(ArchiveDamagedError, match=f"cannot be read: {name}"):
        decode(orjson.dumps(orjson.loads(_MANIFEST.encode()) | {name: value}))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("name", "../../etc/passwd"),
        ("name", "day=2026-01-31/../session_output_p00000001-0000-0123456789abcdef.parquet"),
        ("name", f"{_FILE.name}\n"),
        ("sha256", "short"),
        ("rows", -1),
        ("committed_from", "2026-01-31T00:00:00"),
    ],
)
def test_a_file_of_another_form_is_damage(name: str, value: Any) -> None:
    document = orjson.loads(_MANIFEST.encode())
    document["files"][0][name] = value
    with pytest.raises(ArchiveDamagedError, match=f"files.0.{name}"):
        decode(orjson.dumps(document))


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"\xff", b"null"])
def test_what_is_no_document_is_damage(text: bytes) -> None:
    with pytest.raises(ArchiveDamagedError):
        decode(text)
