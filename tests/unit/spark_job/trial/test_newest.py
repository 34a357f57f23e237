"""The input is read backwards, each record once, and no further than the limits allow."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from service.kafka.reading import NamedPartition
from service.settings import KafkaSettings
from spark_job.input.reading import NoAnswerError
from spark_job.trial import newest
from spark_job.trial.newest import NewestRecords, ReadLimits

SIZE = 10


@dataclass(frozen=True)
class Message:
    place: NamedPartition
    number: int

    def topic(self) -> str:
        return self.place[0]

    def partition(self) -> int:
        return self.place[1]

    def offset(self) -> int:
        return self.number

    def __len__(self) -> int:
        return SIZE


class Log:
    """Stands for Kafka: every offset has a record. `asked`: the ranges, one entry for each reading."""

    def __init__(self) -> None:
        self.asked: list[dict[NamedPartition, tuple[int, int]]] = []
        self.before_each: Callable[[], None] = lambda: None

    def __call__(
        self,
        _client: object,
        ranges: Mapping[NamedPartition, tuple[int, int]],
        _timeout_s: float,
        _give_up: Callable[[], bool],
    ) -> Iterator[list[Any]]:
        self.asked.append(dict(ranges))
        for place, (start, end) in ranges.items():
            for offset in range(start, end):
                self.before_each()
                yield [Message(place, offset)]


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    found = Log()
    monkeypatch.setattr(newest, "committed_ranges", found)
    return found


def records(
    starts: tuple[int, int] = (0, 0),
    ends: tuple[int, int] = (1_000, 1_000),
    max_bytes: int = 1 << 20,
    timeout_s: float = 60,
) -> NewestRecords:
    first, second = ("in", 0), ("in", 1)
    return NewestRecords(
        KafkaSettings(),
        {first: starts[0], second: starts[1]},
        {first: ends[0], second: ends[1]},
        ReadLimits(max_bytes, timeout_s),
    )


def offsets(of: NewestRecords) -> list[list[int]]:
    return [[message.offset() for message in messages] for messages in of.records.values()]


def test_each_reading_goes_further_back_until_the_first_record(log: Log) -> None:
    reading = records(starts=(900, 0), ends=(1_000, 50))
    while reading.extend():
        pass
    assert offsets(reading) == [list(range(900, 1_000)), list(range(50))]
    assert reading.limited_by is None
    assert (reading.n_records, reading.n_bytes) == (150, 150 * SIZE)
    assert log.asked == [
        {("in", 0): (968, 1_000), ("in", 1): (18, 50)},
        {("in", 0): (900, 968), ("in", 1): (0, 18)},
    ]


def test_no_more_is_asked_for_than_there_is_room_for(log: Log) -> None:
    reading = records(max_bytes=200 * SIZE)
    while reading.extend():
        pass
    assert reading.limited_by == f"--max-bytes {200 * SIZE}"
    assert reading.n_bytes <= 200 * SIZE
    assert offsets(reading) == [list(range(900, 1_000))] * 2


def test_what_turns_out_larger_than_the_room_is_left_out_whole(log: Log) -> None:
    """Half a reading would leave a hole between it and the records behind it."""
    reading = records(max_bytes=20 * SIZE)
    assert not reading.extend()
    assert reading.limited_by == f"--max-bytes {20 * SIZE}"
    assert offsets(reading) == [[], []]
    assert reading.n_bytes == 21 * SIZE
    assert not reading.extend()


def test_time_ends_the_reading(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    reading = records(timeout_s=5)
    assert reading.extend()
    log.before_each = lambda: now.__setitem__(0, now[0] + 1)
    assert not reading.extend()
    assert reading.limited_by == "--timeout 5"
    assert offsets(reading) == [list(range(968, 1_000))] * 2


def test_a_broker_that_gives_nothing_is_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*_: object) -> Iterator[list[Any]]:
        raise NoAnswerError("in/0 was not read")

    monkeypatch.setattr(newest, "committed_ranges", silent)
    with pytest.raises(NoAnswerError):
        records().extend()
