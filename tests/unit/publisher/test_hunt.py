"""The row that Kafka refuses is found with few transactions, none of them too slow."""

from hypothesis import given
from hypothesis import strategies as st

from publisher.hunt import ONE_BY_ONE_ROWS, Hunt


def deliver(rows: int, bad: set[int], chunk: int) -> tuple[list[int], list[int], int]:
    """Play a lane: return the rows that went out, those that were parked, and how many transactions it took."""
    hunt = Hunt()
    out: list[int] = []
    parked: list[int] = []
    cursor = transactions = 0
    while cursor < rows:
        transactions += 1
        end = min(rows, cursor + (chunk if hunt.rows is None else min(chunk, hunt.rows)))
        sent = [row for row in range(cursor, end) if row not in parked]
        assert not hunt.one_by_one or len(sent) <= ONE_BY_ONE_ROWS
        refused = [row for row in sent if row in bad]
        if not refused:
            out += sent
            cursor = end
            hunt.delivered()
        elif hunt.one_by_one:
            parked.append(refused[0])
        else:
            hunt.refused(len(sent))
    assert not hunt.on
    return out, parked, transactions


@given(
    rows=st.integers(0, 3_000),
    bad=st.sets(st.integers(0, 2_999), max_size=20),
    chunk=st.sampled_from([1, 31, 32, 33, 100, 1_000, 100_000]),
)
def test_every_refused_row_is_parked_and_all_others_go_out_in_order(
    rows: int, bad: set[int], chunk: int
) -> None:
    out, parked, _ = deliver(rows, bad, chunk)
    assert out == [row for row in range(rows) if row not in bad]
    assert parked == sorted(row for row in bad if row < rows)


def test_one_refused_row_among_many_costs_a_handful_of_transactions() -> None:
    for row in (0, 499, 99_999):
        assert deliver(100_000, {row}, 100_000)[2] <= 18


def test_a_flood_of_refused_rows_costs_little_more_than_a_transaction_each() -> None:
    assert deliver(1_000, set(range(1_000)), 1_000)[2] <= 1_000 + 250
