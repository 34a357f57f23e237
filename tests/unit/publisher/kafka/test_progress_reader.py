"""What later epochs left in partitions of their own is found without reading all that earlier ones left there."""

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from publisher.kafka.progress_reader import StoredProgress, later_than, partition_records
from service.settings import KafkaSettings
from tests.support.lanes import RECORD


def records(*written: tuple[int, int, bool], read: list[int] | None = None) -> Iterator[StoredProgress]:
    """Records as (epoch, lane, whether it was put aside), newest first."""
    for number, (epoch, lane, aside) in enumerate(written, 1):
        if read is not None:
            read.append(number)
        record = replace(RECORD, epoch=epoch, lane=lane)
        yield StoredProgress(record.key(), None if aside else record.encode())


def test_reading_ends_where_a_known_epoch_wrote() -> None:
    read: list[int] = []
    assert later_than(records(*[(2, 9, False)] * 50_000, read=read), 3) == {}
    assert len(read) == 256


def test_later_epochs_are_found_and_what_was_put_aside_is_not() -> None:
    written = [(5, 9, True), (4, 9, False), (3, 9, False), (6, 9, False), (5, 9, False), (4, 9, False)]
    found = later_than(records(*written), 3)
    assert sorted(found) == [(4, 9), (6, 9)]
    assert sorted(later_than(records(*written), 3, least=1)) == [(4, 9)]


def test_partitions_one_after_the_other_are_read_with_one_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    def consumer(_settings: KafkaSettings) -> Any:
        made.append(SimpleNamespace(close=lambda: None))
        return made[-1]

    monkeypatch.setattr("publisher.kafka.clients.progress_consumer", consumer)
    asked: list[int] = []

    def high_watermark(_topic: str, partition: int, *, committed: bool) -> int:
        assert not committed
        asked.append(partition)
        return 0

    topics: Any = SimpleNamespace(high_watermark=high_watermark)
    with partition_records(KafkaSettings(), topics, "progress") as records_of:
        assert [list(records_of(partition)) for partition in (0, 8, 9)] == [[], [], []]
    assert asked == [0, 8, 9]
    assert len(made) == 1
