"""What somebody with the job's login cannot do to the lanes."""

import psycopg
import pytest
from psycopg import errors

from tests.support.outbox.valid_rows import OutboxRows
from tests.support.rights.declared import WRITER

EPOCHS = "SELECT epoch, from_batch, lanes FROM outbox.lane_epoch"


@pytest.mark.parametrize(
    "epoch", [(1, 1, 4), (2, 2, 1), (2**31 - 1, 1_000_000_000, 1_024)], ids=["first", "past", "last"]
)
def test_it_inserts_no_lane_epoch(outbox: OutboxRows, epoch: tuple[int, int, int]) -> None:
    with (
        psycopg.connect(outbox.dsn, options=f"-c role={WRITER}") as hostile,
        pytest.raises(errors.InsufficientPrivilege),
    ):
        hostile.execute("INSERT INTO outbox.lane_epoch (epoch, from_batch, lanes) VALUES (%s, %s, %s)", epoch)


def test_it_sets_the_lane_count_of_an_outbox_without_one_and_no_other(outbox: OutboxRows) -> None:
    with psycopg.connect(outbox.dsn, options=f"-c role={WRITER}") as job:
        job.execute("SELECT outbox.first_lane_epoch(4)")
    assert outbox.rows(EPOCHS) == [(1, 1, 4)]
    outbox.connection.execute("UPDATE outbox.lane_epoch SET epoch = 2, from_batch = 7")
    with psycopg.connect(outbox.dsn, options=f"-c role={WRITER}") as job:
        job.execute("SELECT outbox.first_lane_epoch(1)")
    assert outbox.rows(EPOCHS) == [(2, 7, 4)], "retention has pruned the first epoch"


def test_a_letter_that_it_closes_is_kept_as_long_as_any_other(outbox: OutboxRows) -> None:
    """Retention goes by when a letter was closed, which Postgres writes down."""
    outbox.insert_parents("dead_letter")
    outbox.insert("dead_letter")
    with psycopg.connect(outbox.dsn, autocommit=True, options=f"-c role={WRITER}") as hostile:
        hostile.execute("UPDATE outbox.dead_letter SET state = 'discarded', state_changed_at = '-infinity'")
        hostile.execute("UPDATE outbox.dead_letter SET state_changed_at = '-infinity'")
    assert outbox.rows("SELECT state, now() - state_changed_at < '1 hour' FROM outbox.dead_letter") == [
        ("discarded", True)
    ]
    assert outbox.value("SELECT removed FROM outbox.remove_closed_letters(3600, 0, 0, 10)") == 0


def test_it_dates_no_batch(outbox: OutboxRows) -> None:
    """Invented batches at the end of a partition would make its outputs as old as retention wants them."""
    outbox.insert_parents("batch")
    outbox.connection.execute(f"SET ROLE {WRITER}")
    with pytest.raises(errors.InsufficientPrivilege):
        outbox.insert("batch", created_at="-infinity")
    outbox.insert("batch")
