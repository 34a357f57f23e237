"""Rows that were excluded stay excluded, however many were recorded and however the rest is cut into chunks."""

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from publisher.delivery.excluded_rows import ExcludedRows
from publisher.protocol.records import Row, RowKey
from tests.support.lanes import PLAIN

KEYS = st.builds(RowKey, st.integers(1, 6), st.sampled_from("abcd"))


def rows(keys: set[RowKey]) -> list[Row]:
    """The rows with these keys, in the order of delivery."""
    return [PLAIN._replace(batch_id=key.batch_id, session_key=key.session_key) for key in sorted(keys)]


@given(everything=st.sets(KEYS), recorded=st.sets(KEYS), added=st.sets(KEYS), size=st.integers(1, 5))
def test_neither_recorded_nor_added_rows_are_among_those_that_are_sent(
    everything: set[RowKey], recorded: set[RowKey], added: set[RowKey], size: int
) -> None:
    excluded = ExcludedRows(sorted(recorded))
    sent: list[RowKey] = []
    found = rows(everything)
    for start in range(0, len(found), size):
        chunk = found[start : start + size]
        excluded.move_to(chunk)
        for row in excluded.without(chunk):
            if row.row_key in added:
                excluded.add(row.row_key)
        left = excluded.without(chunk)
        # The same chunk once more, as after a failed transaction.
        excluded.move_to(chunk)
        assert excluded.without(chunk) == left
        sent += [row.row_key for row in left]
    assert sent == sorted(everything - recorded - added)


def test_recorded_rows_are_read_no_further_than_the_delivery_comes_and_none_is_kept_that_it_has_passed() -> (
    None
):
    read: list[RowKey] = []

    def recorded() -> Iterator[RowKey]:
        for batch_id in range(1, 1_000):
            read.append(RowKey(batch_id, "a"))
            yield read[-1]

    excluded = ExcludedRows(recorded())
    assert len(read) == 1
    excluded.move_to(rows({RowKey(500, "a"), RowKey(502, "b")}))
    assert len(read) == 503
    assert excluded._keys == {(500, "a"), (501, "a"), (502, "a")}
