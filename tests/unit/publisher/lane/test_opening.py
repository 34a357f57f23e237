"""A lane that takes long to open because there is much to read shows that it lives."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from publisher.delivery.context import Context
from publisher.kafka.progress_reader import StoredProgress
from publisher.lane import lane as lanes
from publisher.protocol.epochs import Epoch
from service.observability.loops import Loops
from service.settings import KafkaSettings, PublisherSettings

PARTITIONS = 1_024
A_PARTITION_S, WITHIN_S = 1.0, 340.0


class OpeningLane(lanes.Lane):
    """The first lane of an epoch after one with more."""

    def read_progress(self) -> None:
        """Step 3 alone."""
        self._read_progress()


def test_the_first_lane_is_not_late_while_it_reads_the_partitions_of_an_epoch_with_more_lanes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, late = [100.0], [0.0]

    @contextmanager
    def reader(*_: object) -> Iterator[Callable[[int], Iterator[StoredProgress]]]:
        def records_of(_partition: int) -> Iterator[StoredProgress]:
            now[0] += A_PARTITION_S
            late.append(loop.late_s())
            return iter(())

        yield records_of

    monkeypatch.setattr(lanes, "partition_records", reader)
    context: Any = SimpleNamespace(
        settings=SimpleNamespace(kafka=KafkaSettings(), publisher=PublisherSettings()),
        topics=SimpleNamespace(partitions=lambda _topic: PARTITIONS),
        progress_topic="progress",
        large_row_turns=None,
        stop=SimpleNamespace(is_set=lambda: False),
        give_up=lambda: False,
    )
    lane = OpeningLane(cast(Context, context), Epoch(2, 9, 1), 0)
    with Loops(60, lambda: now[0]).loop("lane 2/0", WITHIN_S) as loop:
        lane.alive = loop.turn
        lane.read_progress()
    assert len(late) > PARTITIONS
    assert max(late) <= 0
