"""A backlog over a slow link gets through: after each failed transaction the next is half as large, and it grows back slowly."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from publisher.delivery.transaction_size import TransactionSize

TIMEOUT_S = 60.0


@pytest.mark.guarantee(69)
@given(
    rows=st.integers(1, 3_000),
    row_bytes=st.integers(100, 20_000),
    per_second=st.integers(1_000, 50_000_000),
)
def test_a_backlog_gets_through_and_few_transactions_are_lost(
    rows: int, row_bytes: int, per_second: int
) -> None:
    if row_bytes > per_second * TIMEOUT_S:
        return  # a row that cannot go out alone
    size = TransactionSize(1_000, 16 << 20, TIMEOUT_S)
    sent = failures = 0
    while sent < rows:
        chunk = max(1, min(size.rows, rows - sent, -(-size.bytes // row_bytes)))
        took = chunk * row_bytes / per_second
        if took > TIMEOUT_S:
            size.failed(chunk, chunk * row_bytes, "timed out")
            failures += 1
        else:
            size.committed(took)
            sent += chunk
        # Halvings to the size that fits; it never grows back beyond that.
        assert failures <= 15


def test_it_grows_back_to_what_the_settings_allow_and_says_so_while_it_has_not() -> None:
    size = TransactionSize(1_000, 1 << 20, TIMEOUT_S)
    size.failed(400, 1 << 20, "first")
    assert (size.rows, size.bytes, size.reason) == (200, 1 << 19, None)
    size.failed(200, 1 << 19, "Kafka: timed out")
    assert (size.rows, size.bytes) == (100, 1 << 18)
    assert "100 rows and 262144 bytes" in str(size.reason)
    assert "Kafka: timed out" in str(size.reason)
    size.committed(TIMEOUT_S / 2)
    assert size.rows == 100
    for _ in range(20):
        size.committed(0.1)
    assert (size.rows, size.bytes, size.reason) == (1_000, 1 << 20, None)


def test_a_transaction_without_rows_tells_nothing() -> None:
    size = TransactionSize(1_000, 1 << 20, TIMEOUT_S)
    size.failed(0, 0, "Kafka is away")
    assert size.rows == 1_000
