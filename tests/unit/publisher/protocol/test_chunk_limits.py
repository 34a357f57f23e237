"""The cursor walks every row once, in order, wherever transactions are cut."""

from uuid import uuid4

from hypothesis import given
from hypothesis import strategies as st

from contract.cursor import Cursor
from publisher.protocol.chunk_limits import FetchSize, LedgerRow, first_gap

KEYS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=4)
ROWS = st.sets(st.tuples(st.integers(1, 6), KEYS), max_size=40)
CURSORS = st.builds(Cursor, st.integers(0, 5), st.none() | KEYS)


def in_database_order(row: tuple[int, str]) -> tuple[int, bytes]:
    return row[0], row[1].encode()


@given(ROWS, CURSORS)
def test_the_rows_after_a_cursor_are_those_greater_than_its_bound(
    rows: set[tuple[int, str]], at: Cursor
) -> None:
    passed = {
        row
        for row in rows
        if row[0] < at.batch_id
        or (row[0] == at.batch_id and (at.session_key is None or row[1].encode() <= at.session_key.encode()))
    }
    bound_batch, bound_key = at.exclusive_bound()
    after = {row for row in rows if in_database_order(row) > (bound_batch, bound_key.encode())}
    assert after == rows - passed
    assert all((Cursor(*row) <= at) == (row in passed) for row in rows)


@given(
    st.lists(st.tuples(st.integers(1, 400), st.integers(1, 9)), max_size=60),
    st.integers(1, 7),
    st.integers(1, 400),
)
def test_chunks_carry_every_row_once_and_no_more_bytes_than_allowed_and_a_row(
    table: list[tuple[int, int]], most_rows: int, most_bytes: int
) -> None:
    """Rows of (bytes that are stored, times that they take when read): what the statement of a lane returns of them."""
    size = FetchSize()
    walked = 0
    while walked < len(table):
        step, expansion = size.rows(most_rows, most_bytes), size.expansion
        fetched: list[tuple[int, int]] = []
        for stored, times in table[walked : walked + step]:
            if sum(stored * expansion for stored, _ in fetched) >= most_bytes:
                break
            fetched.append((stored, times))
        assert 1 <= len(fetched) <= most_rows
        real = [stored * times for stored, times in fetched]
        # As long as no row shrinks more than it was taken for.
        if all(times <= expansion for _, times in fetched):
            assert sum(real[:-1]) < most_bytes
        size.fetched(len(fetched), sum(real), sum(stored * expansion for stored, _ in fetched))
        walked += len(fetched)


def test_rows_that_shrink_more_than_expected_are_taken_for_what_they_are_the_next_time() -> None:
    size = FetchSize()
    assert (size.expansion, size.rows(1_000, 1 << 24)) == (4, 32)
    size.fetched(10, 10_000, 400)
    assert (size.expansion, size.rows(1_000, 50_000)) == (100, 51)
    size.fetched(10, 1_000, 100_000)
    assert size.expansion == 99


@given(st.sets(st.integers(1, 30)), st.integers(0, 30))
def test_a_missing_ledger_row_is_found(batches: set[int], after: int) -> None:
    ledger = [LedgerRow(batch, uuid4()) for batch in sorted(batches) if batch > after]
    expected = next((n for n in range(after + 1, max(batches, default=0)) if n not in batches), None)
    assert first_gap(after, ledger) == expected


def test_the_end_of_a_batch_is_after_all_of_its_keys() -> None:
    assert Cursor(3, "z") < Cursor(3) < Cursor(4, "a")
    assert not Cursor(3) < Cursor(3)
    # "￿" is one code unit below the surrogates of "𐀀" in UTF-16, but its bytes come first too.
    assert Cursor(3, "￿") < Cursor(3, "𐀀")


def test_what_is_said_of_a_cursor_holds_no_session_key() -> None:
    """It is in logs, on /readyz and in the reason of a stopped lane."""
    assert str(Cursor(3, "alice@example.org")) == "batch 3, in the middle"
    assert str(Cursor(3)) == "batch 3"
