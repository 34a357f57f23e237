"""A savepoint as a file: what is read is what was written, or it is refused."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
import pytest

from service.errors import SettingsError
from spark_job.input.offsets import Offsets, TopicPartition
from spark_job.ledger.open_partitions import OpenPartition, OpenPartitions
from spark_job.ledger.rules_lineage import Former, Lineage
from spark_job.ledger.savepoints import Savepoint
from spark_job.savepoints import exported
from spark_job.savepoints.exported import ExportedSavepoint, checksum_of
from tests.support.reference.tombstones import tombstones

P0, P1 = TopicPartition("id", 0), TopicPartition("id", 1)
SAVEPOINT = Savepoint(
    name="before-0.9",
    generation=2,
    batch_id=7,
    end=Offsets({P0: 15, P1: 20}),
    open=OpenPartitions({P0: OpenPartition(10, 2, 4, 90, "3-digest", tombstones(k=9))}),
    lineage=Lineage((Former({"timeout_s": 30.0, "end": "ü"}, Offsets({P0: 3})),)),
    assembly={"timeout_s": 60.0, "end": "ü"},
    topics={"id": "in"},
    revision=3,
    created_at=datetime(2026, 1, 1, 12, tzinfo=UTC),
)
EXPORTED = ExportedSavepoint.of(SAVEPOINT, UUID(int=7))


def written(folder: Path, content: object) -> Path:
    file = folder / "savepoint.json"
    file.write_bytes(content if isinstance(content, bytes) else orjson.dumps(content))
    return file


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    found = ExportedSavepoint.read(written(tmp_path, EXPORTED.to_json()))
    assert found == EXPORTED
    assert (found.end, found.open, found.lineage) == (SAVEPOINT.end, SAVEPOINT.open, SAVEPOINT.lineage)
    assert (found.assembly, found.topics, found.name) == (
        SAVEPOINT.assembly,
        SAVEPOINT.topics,
        SAVEPOINT.name,
    )
    assert (found.outbox_uuid, found.created_at) == (UUID(int=7), "2026-01-01T12:00:00+00:00")


@pytest.mark.parametrize(("number", "digest"), [(1, "0" * 32), (2, "2-digest")])
def test_a_file_of_a_release_before_is_read_without_its_digests(
    tmp_path: Path, number: int, digest: str
) -> None:
    content = EXPORTED.to_json() | {"format": f"spark-outbox savepoint {number}"}
    content["open_state"]["id"]["0"]["digest"] = digest
    del content["checksum"]
    found = ExportedSavepoint.read(written(tmp_path, content | {"checksum": checksum_of(content)}))
    assert found.open == OpenPartitions({P0: replace(SAVEPOINT.open[P0], digest=None)})


def test_spaces_and_the_order_of_names_may_change(tmp_path: Path) -> None:
    content = dict(reversed(EXPORTED.to_json().items()))
    assert (
        ExportedSavepoint.read(written(tmp_path, orjson.dumps(content, option=orjson.OPT_INDENT_2)))
        == EXPORTED
    )


def leaves(value: Any) -> Iterator[tuple[Any, Any]]:
    """(container, key) of every value that contains no other one."""
    for key, inner in list(value.items() if isinstance(value, dict) else enumerate(value)):
        if isinstance(inner, dict | list):
            yield from leaves(inner)
        else:
            yield value, key


@pytest.mark.guarantee(91)
def test_an_edited_value_is_refused_wherever_it_is(tmp_path: Path) -> None:
    count = len(list(leaves(EXPORTED.to_json())))
    assert count > 15
    for number in range(count):
        content = EXPORTED.to_json()
        container, key = list(leaves(content))[number]
        container[key] = (
            container[key] + 1 if isinstance(container[key], int | float) else f"{container[key]}x"
        )
        with pytest.raises(SettingsError):
            ExportedSavepoint.read(written(tmp_path, content))


def without(name: str) -> Callable[[dict[str, Any]], object]:
    return lambda content: {key: value for key, value in content.items() if key != name}


@pytest.mark.parametrize(
    ("damaged", "because"),
    [
        (lambda content: orjson.dumps(content)[:-20], "cannot be read as an exported savepoint"),
        (lambda _: b"", "cannot be read as an exported savepoint"),
        (lambda _: b"\xff", "cannot be read as an exported savepoint"),
        (lambda content: [content], "its format is 'list'"),
        (lambda _: {}, "its format is None"),
        (
            lambda content: content | {"format": "spark-outbox savepoint 4"},
            "its format is 'spark-outbox savepoint 4'",
        ),
        (without("checksum"), "its checksum is None.* Export it again"),
        (without("lineage"), "is not as it was written"),
        (lambda content: content | {"extra": 1}, "is not as it was written"),
    ],
    ids=[
        "cut off",
        "empty",
        "no text",
        "a list",
        "no fields",
        "another version",
        "no checksum",
        "a part is missing",
        "a part more",
    ],
)
def test_a_file_that_is_no_whole_export_is_refused_with_the_reason(
    tmp_path: Path, damaged: Callable[[dict[str, Any]], object], because: str
) -> None:
    with pytest.raises(SettingsError, match=because):
        ExportedSavepoint.read(written(tmp_path, damaged(EXPORTED.to_json())))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"absent\.json.*No such file"):
        ExportedSavepoint.read(tmp_path / "absent.json")


FORGED: list[tuple[tuple[str, ...], object]] = [
    (("outbox",), 5),
    (("outbox",), "no uuid"),
    (("name",), ["a"]),
    (("created_at",), "yesterday"),
    (("topics",), []),
    (("topics", "id"), 5),
    (("end_offsets",), []),
    (("end_offsets", "id"), 7),
    (("end_offsets", "id", "0"), -2),
    (("end_offsets", "id", "0"), 1.5),
    (("end_offsets", "id", "0"), True),
    (("end_offsets", "id", "0"), None),
    (("end_offsets", "id", "0"), "7"),
    (("end_offsets", "id", "0"), 2**63),
    (("end_offsets", "id", "00"), 7),
    (("end_offsets", "id", "\u00b2"), 7),
    (("end_offsets", "id", "9" * 5_000), 7),
    (("open_state", "id", "0"), []),
    (("open_state", "id", "0", "safe"), "10"),
    (("open_state", "id", "0", "sessions"), -1),
    (("open_state", "id", "0", "digest"), 5),
    (("open_state", "id", "0", "tombstones"), "\u20ac"),
    (("open_state", "id", "0", "tombstones"), "AAAA"),
    (("open_state", "id", "0", "tombstones"), "////////////////"),
    (("open_state", "id", "0", "refused"), [[1, 2, 3]]),
    (("open_state", "id", "0", "refused"), [["a", 2, 3, 0]]),
    (("open_state", "id", "0", "refused"), [[1, 2, 3, 0]] * 10_001),
    (("assembly",), "rules"),
    (("assembly", "rules"), "2"),
    (("assembly", "format"), "xml"),
    (("assembly", "schema_id"), 5),
    (("assembly", "max_open_bytes"), "many"),
    (("assembly", "timeout_s"), "long"),
    (("assembly", "timeout_s"), 1e300),
    (("assembly", "start"), "\u00fc"),
    (("lineage",), {}),
    (("lineage",), [5]),
    (("lineage",), [{"assembly": {}, "start": {"id": {"0": -1}}}]),
    (("lineage",), [{"assembly": {"max_events": "many"}, "start": {}}]),
]


@pytest.mark.parametrize(("place", "value"), FORGED, ids=lambda each: str(each)[:40])
def test_a_forged_value_is_refused_although_the_checksum_is_right(
    tmp_path: Path, place: tuple[str, ...], value: object
) -> None:
    content: Any = EXPORTED.to_json()
    container = content
    for name in place[:-1]:
        container = container[name]
    container[place[-1]] = value
    del content["checksum"]
    file = written(tmp_path, content | {"checksum": checksum_of(content)})
    with pytest.raises(
        SettingsError, match=r"no savepoint that this version writes.*savepoint export NAME"
    ) as error:
        ExportedSavepoint.read(file)
    assert len(str(error.value)) < 1_000


@pytest.mark.parametrize("depth", [300, 900])
def test_a_file_that_is_nested_too_deep_is_refused(tmp_path: Path, depth: int) -> None:
    deep = orjson.dumps(EXPORTED.to_json())[:-1] + b',"deep":' + b'{"a":' * depth + b"1" + b"}" * depth + b"}"
    with pytest.raises(SettingsError, match=r"no savepoint that this version writes|cannot be read"):
        ExportedSavepoint.read(written(tmp_path, deep))


def test_a_larger_file_than_any_savepoint_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = EXPORTED.to_json()
    file = written(tmp_path, content)
    monkeypatch.setattr(exported, "MOST_BYTES", file.stat().st_size - 1)
    with pytest.raises(SettingsError, match="no exported savepoint"):
        ExportedSavepoint.read(file)
