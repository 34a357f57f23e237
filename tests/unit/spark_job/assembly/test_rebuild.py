"""Open sessions are found again in memory that the records' keys and headers do not decide: the job reads neither, unless it is told to."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME

from spark_job.assembly import rebuild
from spark_job.assembly.schemas import RegistryBudget
from tests.support.histories.tasks import slice_of, task_settings

_BLOCKS, _BLOCK = 20, 1_000


class CountedRecord:
    """A small event in a record that may be as large as Kafka takes one; counts how many there are."""

    there = most = 0

    def __init__(self, offset: int) -> None:
        self._offset = offset
        CountedRecord.there += 1
        CountedRecord.most = max(CountedRecord.most, CountedRecord.there)

    def __del__(self) -> None:
        CountedRecord.there -= 1

    def offset(self) -> int:
        return self._offset

    def timestamp(self) -> tuple[int, int]:
        return TIMESTAMP_CREATE_TIME, 0

    def value(self) -> bytes:
        return b'{"session_key":"%d","event_type":"start_event"}' % self._offset

    def __len__(self) -> int:
        return len(self.value())


def test_records_are_let_go_as_soon_as_the_event_is_taken_out_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def committed(*_: Any) -> Iterator[list[CountedRecord]]:
        for block in range(_BLOCKS):
            yield [CountedRecord(block * _BLOCK + number) for number in range(_BLOCK)]

    monkeypatch.setattr(rebuild, "committed_records", committed)
    of = slice_of(start=_BLOCKS * _BLOCK, digest=None)
    found = rebuild.rebuild(of, task_settings(tmp_path), RegistryBudget())
    assert (found.events, found.state.live.totals.events) == (_BLOCKS * _BLOCK, _BLOCKS * _BLOCK)
    assert CountedRecord.there == 0
    assert CountedRecord.most <= 2 * _BLOCK
