"""The cursor walks every row once, in order, wherever transactions are cut."""

from uuid import uuid4

from hypothesis import given
from hypothesis import strategies as st

from publisher.outbox.cursor import ChunkLimits, Cursor, LedgerRow, first_gap

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


@given(ROWS, st.integers(1, 7), st.integers(1, 400), st.integers(1, 5), st.integers(0, 100))
def test_chunks_carry_every_row_once_and_in_order(
    rows: set[tuple[int, str]], most_rows: int, most_bytes: int, step_rows: int, row_bytes: int
) -> None:
    table = sorted(rows, key=in_database_order)
    limits = ChunkLimits(most_rows, most_bytes, step_rows)
    at, walked = Cursor(0), []
    while True:
        chunk: list[tuple[int, str]] = []
        reached, exhausted = at, False
        while not exhausted and (
            step := limits.next_step(len(chunk), len(chunk) * row_bytes, float(row_bytes))
        ):
            batch, key = reached.exclusive_bound()
            fetched = [row for row in table if in_database_order(row) > (batch, key.encode())][:step]
            chunk += fetched
            exhausted = len(fetched) < step
            reached = Cursor(*chunk[-1]) if chunk else at
        assert len(chunk) <= most_rows
        assert (len(chunk) - step_rows) * row_bytes <= most_bytes
        assert reached >= at
        walked += chunk
        if exhausted:
            break
        at = reached
    assert walked == table


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
