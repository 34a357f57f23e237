"""The row that Kafka refuses is found with few transactions, none of them too slow."""

from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.cursor import Cursor
from publisher.delivery.refusal_bisection import ONE_BY_ONE_ROWS, RefusalBisection
from publisher.lane.reader import LaneReader, PendingChunk
from publisher.protocol.chunk_limits import ChunkLimits
from publisher.protocol.history_check import DeliveryPosition
from publisher.protocol.records import Row
from tests.support.lanes import PLAIN


def deliver(
    rows: int, bad: set[int], chunk: int, most_one_by_one: int = ONE_BY_ONE_ROWS
) -> tuple[list[int], list[int], int]:
    """Do as a lane does: return the rows that went out, those that were parked, and how many transactions it took.

    Record by record, a transaction of more than `most_one_by_one` rows outlives its timeout.
    """
    bisection = RefusalBisection()
    out: list[int] = []
    parked: list[int] = []
    cursor = transactions = 0
    while cursor < rows:
        transactions += 1
        assert transactions <= 100 * (rows + 1), "the same rows are tried for ever"
        end = min(rows, cursor + (chunk if bisection.rows is None else min(chunk, bisection.rows)))
        sent = [row for row in range(cursor, end) if row not in parked]
        assert not bisection.one_by_one or len(sent) <= ONE_BY_ONE_ROWS
        refused = [row for row in sent if row in bad]
        if bisection.one_by_one and len(sent) > most_one_by_one:
            bisection.failed()
        elif not refused:
            out += sent
            cursor = end
            bisection.delivered()
        elif bisection.one_by_one:
            parked.append(refused[0])
        else:
            bisection.refused(len(sent))
    assert not bisection.on
    return out, parked, transactions


@pytest.mark.guarantee(67)
@given(
    rows=st.integers(0, 3_000),
    bad=st.sets(st.integers(0, 2_999), max_size=20),
    chunk=st.sampled_from([1, 31, 32, 33, 100, 1_000, 100_000]),
    most_one_by_one=st.sampled_from([1, 5, 31, 32]),
)
def test_every_refused_row_is_parked_and_all_others_go_out_in_order(
    rows: int, bad: set[int], chunk: int, most_one_by_one: int
) -> None:
    out, parked, _ = deliver(rows, bad, chunk, most_one_by_one)
    assert out == [row for row in range(rows) if row not in bad]
    assert parked == sorted(row for row in bad if row < rows)


def test_one_refused_row_among_many_costs_a_handful_of_transactions() -> None:
    for row in (0, 499, 99_999):
        assert deliver(100_000, {row}, 100_000)[2] <= 18


def test_a_flood_of_refused_rows_costs_little_more_than_a_transaction_each() -> None:
    assert deliver(1_000, set(range(1_000)), 1_000)[2] <= 1_000 + 250


def test_a_failure_where_nothing_is_hunted_leaves_transactions_as_large_as_they_were() -> None:
    bisection = RefusalBisection()
    bisection.failed()
    assert bisection.rows is None


def chunk_of(events: list[int], most_events: int | None) -> tuple[list[str], Cursor, UUID | None, bool]:
    """Read rows with so many events each, two of a batch: keys, end, its commit id and whether there is more."""
    rows: list[Row] = [
        PLAIN._replace(
            batch_id=1 + n // 2, session_key=f"k{n}", topics=["out"] * count, values=[b"v"] * count
        )
        for n, count in enumerate(events)
    ]
    ledger = [(batch, UUID(int=batch), 0.0) for batch in range(1, 1 + (len(rows) + 1) // 2)]

    def answer(found: list[Any]) -> Any:
        return SimpleNamespace(fetchall=lambda: found, fetchone=lambda: None)

    asked = PendingChunk(
        cast("psycopg.Connection[Any]", None),
        ExitStack(),
        DeliveryPosition(0, Cursor(0), None),
        ChunkLimits(32, 1 << 20, events=most_events),
        32,
        answer(ledger),
        answer([]),
        answer([(*row, [2_000], 100, True) for row in rows]),
    )
    chunk = LaneReader(1, 0).take(asked)
    return [row.session_key for row in chunk.rows], chunk.end, chunk.commit_id, chunk.more


def test_rows_with_many_events_go_record_by_record_in_smaller_transactions() -> None:
    assert chunk_of([10, 10, 10, 10], None) == (["k0", "k1", "k2", "k3"], Cursor(2), UUID(int=2), False)
    assert chunk_of([10, 10, 10, 10], 40) == (["k0", "k1", "k2", "k3"], Cursor(2), UUID(int=2), False)
    assert chunk_of([10, 10, 10, 10], 39) == (["k0", "k1", "k2"], Cursor(2, "k2"), UUID(int=2), True)
    assert chunk_of([10, 10, 10, 10], 20) == (["k0", "k1"], Cursor(1, "k1"), UUID(int=1), True)
    assert chunk_of([50, 10, 10, 10], 20) == (["k0"], Cursor(1, "k0"), UUID(int=1), True)
    assert chunk_of([50], 20) == (["k0"], Cursor(1), UUID(int=1), False)
