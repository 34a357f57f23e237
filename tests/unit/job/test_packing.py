"""What is packed before the shuffle comes out whole behind it, byte for byte."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from spark_job.packing import SCHEMA, pack, unpack

events = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.one_of(st.none(), st.binary(max_size=6)),
        st.one_of(st.none(), st.text(max_size=4).map(str.encode)),
    ),
    max_size=40,
)


def batch(rows: list[tuple[int, bytes | None, bytes | None]], first: int) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "bucket": pa.array([bucket for bucket, _, _ in rows], pa.int32()),
            "offset": pa.array(range(first, first + len(rows)), pa.int64()),
            "key": pa.array([key for _, _, key in rows], pa.binary()),
            "value": pa.array([value for _, value, _ in rows], pa.binary()),
        }
    )


@given(st.lists(events, max_size=3))
def test_every_event_arrives_once_in_its_bucket_with_its_exact_bytes(batches: list) -> None:  # type: ignore[type-arg]
    packed = [
        row
        for n, rows in enumerate(batches)
        for out in pack([batch(rows, n * 100)])
        for row in out.to_pylist()
    ]
    found = {}
    for bucket in {row["bucket"] for row in packed}:
        for event in unpack([row["events"] for row in packed if row["bucket"] == bucket]).to_pylist():
            assert event["offset"] not in found
            value = event["raw"] if event["value"] is None else event["value"].encode()
            key = event["raw_key"] if event["key"] is None else event["key"].encode()
            found[event["offset"]] = (bucket, value, key)
    assert found == {n * 100 + i: row for n, rows in enumerate(batches) for i, row in enumerate(rows)}


def test_text_and_what_is_not_text_are_told_apart_value_by_value() -> None:
    rows = [(1, b"a", b"k"), (1, b"\xff", b"\xfe"), (1, None, None), (1, "ä".encode(), b"")]
    (out,) = pack([batch(rows, 0)])
    assert out.schema == SCHEMA
    table = unpack(out.column("events").to_pylist())
    assert table.column("value").to_pylist() == ["a", None, None, "ä"]
    assert table.column("raw").to_pylist() == [None, b"\xff", None, None]
    assert table.column("raw_key").to_pylist() == [None, b"\xfe", None, None]


def test_a_bucket_costs_one_row_for_each_batch() -> None:
    (out,) = pack([batch([(n % 2, b"v", b"k") for n in range(1_000)], 0)])
    assert out.column("bucket").to_pylist() == [0, 1]
