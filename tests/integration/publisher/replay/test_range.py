"""Which batches a replay takes, and which it names as left out."""

from datetime import UTC, datetime

import psycopg
import pytest

from publisher.replay.selection import Filters, ReplayRange, resolve
from service.commands.times import Moment
from tests.support.outbox.batches import Outbox
from tests.support.queries import query

HALF_PAST_8, HALF_PAST_10 = (
    datetime(2026, 11, 21, 8, 30, tzinfo=UTC),
    datetime(2026, 11, 21, 10, 30, tzinfo=UTC),
)
NOT_DELIVERED = (
    "batches 42,001 to 43,000 are left out: not every lane has delivered them yet, and live publishing sends them "
    "(`publisher status`)"
)


def hole(first: str, last: str) -> str:
    """The note on batches that are gone."""
    return (
        f"batches {first} to {last} are left out: retention has dropped their rows, though it kept older ones"
    )


@pytest.fixture
def holed(database: str) -> str:
    """Batches 1 to 43,000, up to 42,000 delivered; those of 10,000 to 29,999 are dropped. The clock stepped back once."""
    outbox = Outbox(database, "unused", lanes=1)
    query(database, "SELECT outbox.ensure_partitions(1, 43000)")
    for _ in range(4):
        outbox.batch({})
    for batch, new, at in [(4, 43_000, "12:00"), (3, 42_000, "11:00"), (2, 35_000, "09:00"), (1, 1, "10:00")]:
        changes = (new, f"2026-11-21 {at}:00+00", batch)
        query(
            database, "UPDATE outbox.batch SET batch_id = %s, created_at = %s WHERE batch_id = %s", *changes
        )
    query(database, "DROP TABLE outbox.session_output_p00000001, outbox.session_output_p00000002")
    query(
        database,
        "INSERT INTO outbox.lane (epoch, lane, seq, cursor_batch, cursor_commit_id) VALUES (1, 0, 1, 42000, gen_random_uuid())",
    )
    return database


@pytest.mark.guarantee(78, 169)
@pytest.mark.parametrize(
    ("filters", "batches"),
    [
        (Filters(), ReplayRange(1, 42_000, [NOT_DELIVERED, hole("10,000", "29,999")], [(10_000, 29_999)])),
        (Filters(from_batch=15_000, to_batch=36_000), ReplayRange(15_000, 36_000, [hole("15,000", "29,999")], [(15_000, 29_999)])),
        (Filters(from_batch=3, to_batch=9_999), ReplayRange(3, 9_999, [], [])),
        (Filters(from_batch=30_000, to_batch=42_000), ReplayRange(30_000, 42_000, [], [])),
        (Filters(since=Moment(at=HALF_PAST_8), to_batch=9_999), ReplayRange(1, 9_999, [], [])),
        (Filters(from_batch=30_000, until=Moment(at=HALF_PAST_10)), ReplayRange(30_000, 35_000, [], [])),
    ],
)  # fmt: skip
def test_what_retention_dropped_in_the_middle_is_named_and_a_clock_that_stepped_back_leaves_nothing_out(
    holed: str, filters: Filters, batches: ReplayRange
) -> None:
    with psycopg.connect(holed, autocommit=True) as connection:
        assert resolve(connection, filters) == batches


@pytest.mark.guarantee(76)
def test_a_lane_whose_resume_did_not_end_may_send_all_of_its_epoch_again_so_a_replay_takes_none(
    holed: str,
) -> None:
    """Its mirror may be ahead of its position in Kafka."""
    query(holed, "UPDATE outbox.lane SET stopped_reason = 'a resume began', stopped_why = 'resuming'")
    with psycopg.connect(holed, autocommit=True) as connection:
        found = resolve(connection, Filters(from_batch=30_000))
    assert (found.first, found.last) == (30_000, 0)
