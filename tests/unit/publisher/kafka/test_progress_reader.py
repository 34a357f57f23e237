"""What later epochs left in partitions of their own is found without reading all that earlier ones left there."""

import weakref
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from publisher.kafka import progress_reader
from publisher.kafka.progress_reader import (
    MOST_LATER,
    StoredProgress,
    later_than,
    newest_of,
    partition_records,
    records_backwards,
)
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


@pytest.mark.parametrize("aside", [False, True])
def test_made_up_epochs_are_refused_before_they_fill_the_memory(aside: bool) -> None:
    made_up = [(epoch, 9, aside) for epoch in range(10, 12 + MOST_LATER)]
    with pytest.raises(ValueError, match="epochs that this ledger does not have"):
        later_than(records(*made_up), 3)
    with pytest.raises(ValueError, match="epochs that this ledger does not have"):
        newest_of(records(*made_up), 3, 9)


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


def test_large_records_of_another_writer_do_not_fill_the_memory_and_none_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As many as fit are kept of a window; the next one begins where they do."""
    monkeypatch.setattr(progress_reader, "_LARGEST_WINDOW_BYTES", 10_000)
    alive: list[weakref.ref[Any]] = []
    most = 0

    class Value(bytearray):
        """May be referred to weakly, which bytes may not."""

    class Reader:
        def read(self, ranges: dict[Any, tuple[int, int]]) -> Iterator[list[Any]]:
            nonlocal most
            ((start, end),) = ranges.values()
            for offset in range(start, end):
                value = Value(b"%d" % offset + b" " * 1_000)
                alive.append(weakref.ref(value))
                yield [SimpleNamespace(offset=lambda n=offset: n, key=lambda: b"k", value=lambda v=value: v)]
                most = max(most, sum(each() is not None for each in alive))

    reader: Any = Reader()
    found = [int(record.value or b"") for record in records_backwards(reader, "progress", 0, 300)]
    assert found == list(range(299, -1, -1))
    assert most < 20


def test_a_key_of_another_lane_is_no_record_of_this_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """No publisher writes there, and no tombstone would ever take it away."""
    keys = [b"9/1", b"9/0", b"1/0", b"a replay"]
    monkeypatch.setattr(
        "publisher.kafka.clients.progress_consumer", lambda _: SimpleNamespace(close=lambda: None)
    )
    monkeypatch.setattr(
        progress_reader, "records_backwards", lambda *_: iter([StoredProgress(key, b"") for key in keys])
    )
    topics: Any = SimpleNamespace(high_watermark=lambda *_, **__: 4)
    with partition_records(KafkaSettings(), topics, "progress") as records_of:
        assert [record.key for record in records_of(0)] == [b"9/0", b"1/0", b"a replay"]
