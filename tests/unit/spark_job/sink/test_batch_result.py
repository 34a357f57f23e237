"""A batch on the driver: how rows are formed, and what is open after it."""

import tracemalloc
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import SettingsError
from spark_job.assembly import rows
from spark_job.input.offsets import TopicPartition
from spark_job.ledger.open_partitions import OpenPartition
from spark_job.outputs import pgcopy
from spark_job.outputs.encoding import EncodedOutputs, encode
from spark_job.sink import batch_result
from spark_job.sink.batch_result import SessionRow
from tests.support.outbox.closed_sessions import closed, fields
from tests.support.sink import copied
from tests.support.sink.batches import letter

P0, P1 = TopicPartition("id", 0), TopicPartition("id", 1)


def session(
    key: str, end: int, where: TopicPartition = P0, value: bytes = b"v", keys: bytes | None = None
) -> SessionRow:
    outputs = EncodedOutputs(1, pgcopy.data(b"t"), pgcopy.data(value), keys, None, None, None)
    row = fields(closed(key, end - 2, end), where, outputs)
    return SessionRow(key.encode(), where, end - 2, end, 7, 1, len(value), row)


def test_all_sessions_of_a_key_make_one_row_in_closing_order() -> None:
    """⚠ two rows of one key in a batch would collide, and one of them be lost."""
    sessions = [session("a", 30), session("b", 20), session("a", 10), session("a", 5, P1)]
    (found,) = batch_result.parts(sessions, 10_000)
    assert [(row.key, row.sessions, row.outputs) for row in found] == [(b"a", 3, 3), (b"b", 1, 1)]
    ends = pgcopy.array(pgcopy.INT8, 3, pgcopy.int8s([10, 30, 5]))
    assert ends in found[0].fields


def test_a_key_that_overfills_a_row_continues_in_the_next_part() -> None:
    sessions = [session("a", end, value=b"x" * 100) for end in (10, 20, 30)] + [session("b", 40)]
    parts = batch_result.parts(sessions, 2 * len(sessions[0].fields))
    assert [[(row.key, row.sessions) for row in part] for part in parts] == [
        [(b"a", 2), (b"b", 1)],
        [(b"a", 1)],
    ]


def test_a_batch_without_sessions_still_has_its_part() -> None:
    assert batch_result.parts([], 100) == [[]]


def test_sessions_without_own_keys_get_null_elements_beside_one_that_has() -> None:
    (found,) = batch_result.parts([session("a", 1), session("a", 2, keys=pgcopy.data(b"k"))], 1_000)
    assert pgcopy.array(pgcopy.BYTEA, 2, pgcopy.NULL + pgcopy.data(b"k")) in found[0].fields


def test_a_session_without_outputs_joins_one_that_has() -> None:
    nothing = encode([], 1_000)
    empty = SessionRow(b"a", P0, 1, 3, 7, 0, 0, fields(closed("a", 1, 3), P0, nothing))
    (found,) = batch_result.parts([empty, session("a", 9)], 1_000)
    *_, counts, topics, values, keys, _, _, _ = copied.fields(found[0].copy(1, 8, 0))
    assert copied.int8s((counts or b"")[20:], 2) == [0, 1]
    assert (copied.array(topics or b""), copied.array(values or b""), keys) == ([b"t"], [b"v"], None)


@pytest.mark.guarantee(3)
@given(
    st.permutations([session("a", 1), session("b", 2), session("a", 3), session("ä", 4), session("a", 9, P1)])
)
def test_rows_do_not_depend_on_the_order_of_arrival(sessions: list[SessionRow]) -> None:
    (found,) = batch_result.parts(sessions, 10_000)
    (expected,) = batch_result.parts(sorted(sessions), 10_000)
    assert found == expected
    assert [row.key for row in found] == sorted(row.key for row in found)


def partition_row(source: int, **detail: Any) -> dict[str, Any]:
    """What a task tells of a partition in which nothing is open."""
    default: dict[str, Any] = {
        "safe": None,
        "sessions": 0,
        "events": 0,
        "bytes": 0,
        "digest": "",
        "refused": [],
        "rebuilt": None,
        "problem": "",
    }
    counted = {"counts": {"events": 5, "duplicates": 1}, "seconds": {"open_s": 0.5}}
    return {
        "kind": rows.PARTITION,
        "source": source,
        "detail": orjson.dumps(default | counted | detail).decode(),
        "tombstones": None,
    }


def read(*found: dict[str, Any]) -> batch_result.BatchResult:
    columns = {
        field.name: pa.array([row.get(field.name) for row in found], field.type) for field in rows.SCHEMA
    }
    return batch_result.read(pa.table(columns), {0: P0, 1: P1})


def test_what_the_tasks_counted_is_added_up() -> None:
    result = read(partition_row(0), partition_row(1))
    assert (result.counts, result.seconds) == ({"events": 10, "duplicates": 2}, {"open_s": 1.0})


def test_a_partition_whose_records_were_cut_apart_among_tasks_stops_the_batch() -> None:
    """Each task would have assembled its part over the same open sessions."""
    with pytest.raises(SettingsError, match=r"the records of id/0 .*were cut apart among"):
        read(partition_row(0), partition_row(0))


def test_where_nothing_is_open_the_ledger_keeps_nothing_and_tombstones_alone_pin_no_offset() -> None:
    nothing, opened, buried = (
        read(each).partitions[0].open(100)
        for each in (
            partition_row(0),
            partition_row(0, safe=40, sessions=2, events=7, bytes=9, digest="d"),
            partition_row(0)
            | {"detail": partition_row(0, sessions=1, digest="t")["detail"], "tombstones": b"encoded"},
        )
    )
    assert nothing is None
    assert opened == OpenPartition(40, 2, 7, 9, "d")
    assert buried == OpenPartition(100, 1, 0, 0, "t", b"encoded")


def test_a_flood_of_letters_is_in_memory_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """500,000 letters of 300 bytes made the driver's memory grow by 716 MB; 434 MB with their rows read some at a time."""
    monkeypatch.setattr(batch_result, "_ROWS_AT_ONCE", 500)
    table = pa.Table.from_pylist(
        [letter(f"key {n}", n, n, "malformed", (b"x" * 300,)) for n in range(20_000)], rows.SCHEMA
    )
    tracemalloc.start()
    try:
        found = batch_result.read(table, {0: P0})
        size, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(found.letters) == 20_000
    assert peak < 1.2 * size
