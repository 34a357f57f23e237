"""A lane that fails again and again holds nothing of the rows that it read before, though its process hardly looks for cycles."""

from collections.abc import Callable
from typing import NoReturn

import psutil
import pytest
from confluent_kafka import KafkaError, KafkaException

from publisher.delivery.transaction import Transaction
from publisher.lane.reader import LaneChunk
from publisher.protocol.stop_reasons import HandoverStuckError, StartOverError
from service.settings import Settings
from tests.support.outbox.batches import Outbox, Session
from tests.support.processes.failing_lane import FailingLane, bound

ATTEMPTS = 40
ROWS, ROW_BYTES = 20, 200_000
_WARM_UP = 10


@pytest.mark.parametrize(
    "failure",
    [
        None,
        lambda: KafkaException(KafkaError(KafkaError._TIMED_OUT)),
        StartOverError,
        lambda: HandoverStuckError("another lane hangs"),
    ],
    ids=["a missing topic", "the transaction", "another producer", "no turn"],
)
def test_failed_attempts_hold_no_row(
    outbox: Outbox,
    topic: str,
    settings: Settings,
    failure: Callable[[], Exception] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`failure`: of a transaction; None: the topic is missing."""
    destination = "nowhere" if failure is None else topic
    outbox.batch(
        {
            f"key-{number}": [Session([b"x" * ROW_BYTES], end=number + 1, topics=[destination])]
            for number in range(ROWS)
        }
    )

    def failing_run(*_: object) -> NoReturn:
        assert failure is not None
        raise failure()

    if failure is not None:
        monkeypatch.setattr(Transaction, "run", failing_run)
    lane = FailingLane(bound(settings), outbox.lanes)
    lane.fail(_WARM_UP)
    before = psutil.Process().memory_info().rss
    assert lane.held_after(ATTEMPTS, LaneChunk) == []
    # A tenth of what they read.
    assert psutil.Process().memory_info().rss - before < ATTEMPTS * ROWS * ROW_BYTES / 10
    if failure is not StartOverError:
        assert lane.reason
