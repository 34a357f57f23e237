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
from spark_job.ledger.lineage import Former, Lineage
from spark_job.ledger.open_partitions import OpenPartition, OpenPartitions
from spark_job.ledger.savepoints import Savepoint
from spark_job.savepoints.exported import ExportedSavepoint, checksum_of

P0, P1 = TopicPartition("id", 0), TopicPartition("id", 1)
SAVEPOINT = Savepoint(
    name="before-0.9",
    generation=2,
    batch_id=7,
    end=Offsets({P0: 15, P1: 20}),
    open=OpenPartitions({P0: OpenPartition(10, 2, 4, 90, "2-digest", b"\xfftombstones")}),
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


def test_a_file_of_the_release_before_is_read_without_its_digests(tmp_path: Path) -> None:
    content = EXPORTED.to_json() | {"format": "spark-outbox savepoint 1"}
    content["open_state"]["id"]["0"]["digest"] = "0" * 32
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
            lambda content: content | {"format": "spark-outbox savepoint 3"},
            "its format is 'spark-outbox savepoint 3'",
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
