"""Rows come out of a file as they went in, and the digest knows each difference."""

from datetime import UTC, datetime, timedelta
from io import BytesIO
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from publisher.archive.files import ArchiveDamagedError
from publisher.archive.parquet import (
    SCHEMA,
    Contents,
    FileWriter,
    matching,
    row_groups,
    table_of,
)
from publisher.protocol.stored_row import StoredRow

_INT32 = st.integers(0, 2**31 - 1)
_INT64 = st.integers(0, 2**63 - 1)
_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
_HEADERS = st.lists(st.tuples(_TEXT, st.none() | _TEXT).map(list), max_size=3).map(
    lambda h: orjson.dumps(h).decode()
)


@st.composite
def archived_rows(draw: st.DrawFn, batch_id: int) -> StoredRow:
    sessions, outputs = draw(st.integers(1, 3)), draw(st.integers(0, 4))

    def several(values: st.SearchStrategy[Any], number: int) -> list[Any]:
        return draw(st.lists(values, min_size=number, max_size=number))

    def optional(values: st.SearchStrategy[Any]) -> list[Any] | None:
        return several(st.none() | values, outputs) if draw(st.booleans()) else None

    return StoredRow(
        batch_id,
        draw(_TEXT),
        datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=draw(st.integers(0, 2**50))),
        draw(_INT32),
        draw(_INT32),
        draw(st.booleans()),
        several(_TEXT, sessions),
        several(_INT32, sessions),
        several(_INT64, sessions),
        several(_INT64, sessions),
        several(_INT64, sessions),
        several(_INT64, sessions),
        several(_INT32, sessions),
        several(_INT32, sessions),
        several(_TEXT, outputs),
        several(st.none() | st.binary(max_size=30), outputs),
        optional(st.binary(max_size=10)),
        optional(_HEADERS),
        optional(_INT32),
        optional(_INT64),
    )


_ROWS = st.integers(1, 6).flatmap(lambda n: st.tuples(*(archived_rows(batch) for batch in range(1, n + 1))))


def written(*groups: list[StoredRow]) -> tuple[BytesIO, Contents]:
    file = BytesIO()
    writer = FileWriter(file)
    for group in groups:
        writer.write(table_of(group))
    writer.close()
    file.seek(0)
    return file, writer.contents


@given(_ROWS, st.integers(0, 6))
def test_rows_come_back_as_they_were(rows: tuple[StoredRow, ...], cut: int) -> None:
    file, contents = written(list(rows[:cut]), list(rows[cut:]))
    assert [row for found, _ in matching(file, None) for row in found] == list(rows)
    again = Contents()
    for table in row_groups(file):
        again.add(table)
    assert (again.digest(), again.counts()) == (contents.digest(), contents.counts())
    assert contents.counts() == (
        len(rows),
        sum(len(row.session_ends) for row in rows),
        sum(len(row.topics) for row in rows),
        sum(row.output_bytes() for row in rows),
    )
    assert (contents.first_batch, contents.last_batch) == (1, len(rows))
    times = [row.committed_at for row in rows if row.committed_at is not None]
    assert (contents.committed_from, contents.committed_to) == (min(times), max(times))


@given(archived_rows(1), archived_rows(1))
def test_the_digest_tells_any_two_rows_apart(one: StoredRow, other: StoredRow) -> None:
    assert (written([one])[1].digest() == written([other])[1].digest()) == (one == other)


@pytest.mark.parametrize(
    ("values", "others"),
    [([None], [b""]), ([b"a", b"bc"], [b"ab", b"c"]), ([b"a", None], [None, b"a"])],
)
def test_the_digest_tells_apart_what_has_the_same_bytes(
    values: list[bytes | None], others: list[bytes | None]
) -> None:
    def digest(values: list[bytes | None]) -> str:
        row = (1, "k", datetime(2026, 1, 1, tzinfo=UTC), 0, 0, False, ["t"], [0], [1], [2], [3], [4], [5])
        outputs = len(values)
        return written([StoredRow(*row, [outputs], ["out"] * outputs, values, None, None, None, None)])[
            1
        ].digest()

    assert digest(values) != digest(others)


@given(_ROWS)
def test_only_rows_of_the_named_keys_are_read(rows: tuple[StoredRow, ...]) -> None:
    key = rows[-1].session_key
    file, _ = written(list(rows[:1]), list(rows[1:]))
    found = list(matching(file, [key]))
    assert [row for group, _ in found for row in group] == [row for row in rows if row.session_key == key]
    assert found[-1][1] == (len(rows), key)


def test_a_file_of_other_columns_or_of_no_columns_is_damage() -> None:
    with pytest.raises(ArchiveDamagedError, match="cannot be read as Parquet"):
        list(row_groups(BytesIO(b"PAR1 is not all that it takes")))
    import pyarrow.parquet

    file = BytesIO()
    pyarrow.parquet.write_table(SCHEMA.remove(3).empty_table(), file)
    file.seek(0)
    with pytest.raises(ArchiveDamagedError, match="other columns"):
        list(row_groups(file))


def test_a_value_that_does_not_fit_its_column_is_refused() -> None:
    with pytest.raises(ArchiveDamagedError, match="does not fit"):
        table_of([(1, "k", datetime(2026, 1, 1, tzinfo=UTC), 2**40, 0, False, *[[]] * 14)])
