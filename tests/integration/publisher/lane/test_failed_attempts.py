"""A lane that waits for a missing topic holds nothing of the rows that it read before, though its process hardly looks for cycles."""

from publisher.lane.reader import LaneChunk
from service.settings import Settings
from tests.support.outbox.batches import Outbox, Session
from tests.support.processes.failing_lane import FailingLane, bound

ATTEMPTS = 20
ROW_BYTES = 200_000


def test_failed_attempts_hold_no_row(outbox: Outbox, settings: Settings) -> None:
    outbox.batch(
        {
            f"key-{number}": [Session([b"x" * ROW_BYTES], end=number + 1, topics=["nowhere"])]
            for number in range(20)
        }
    )
    failing = FailingLane(bound(settings), outbox.lanes)
    assert failing.held_after(ATTEMPTS, LaneChunk) == []
    assert "nowhere" in failing.reason
