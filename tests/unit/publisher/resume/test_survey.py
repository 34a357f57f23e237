"""What others write to the progress topic moves no lane, and keeps no resume from moving it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from contract.cursor import Cursor
from contract.progress import Progress, Totals, progress_key
from publisher.kafka.progress_reader import StoredProgress
from publisher.protocol.epochs import Epoch
from publisher.protocol.history_check import MOST_AHEAD
from publisher.protocol.stop_reasons import StoppedError
from publisher.resume import survey as surveys
from publisher.resume.decision import LaneSurvey, Way, healthy, target
from publisher.resume.survey import LaneEpoch, ResumeSurvey
from service.settings import Settings
from tests.support.surveys import COMMIT, IDENTITY, OUTBOX, record

EPOCH = Epoch(1, 1, 1)
OURS = record(7, Cursor(30), events=70)
"""The newest record of the lane, which Postgres has, too."""
BEGUN_ANEW = replace(record(6, Cursor(0), resumed="--from beginning"), commit_id=None)
GREATEST = 2**63 - 1


def surveyed(
    monkeypatch: pytest.MonkeyPatch,
    *newest_first: StoredProgress | Progress,
    partitions: int = 1,
    seq: int = 7,
) -> LaneSurvey:
    """Survey lane 0, whose ledger has the batches 1 to 30 with one commit id, and whose mirror is at batch 30."""

    def execute(query: str, parameters: dict[str, int]) -> Any:
        row: tuple[Any, ...] = (seq, 30 if seq else 0, None, COMMIT, 7, 70, True, seq)
        if query == surveys._RESUMES["began_anew"]:
            row = (parameters["seq"] == BEGUN_ANEW.seq,)
        return SimpleNamespace(fetchone=lambda: row)

    stored = [
        each if isinstance(each, StoredProgress) else StoredProgress(each.key(), each.encode())
        for each in newest_first
    ]

    @contextmanager
    def records(_kafka: Any, _topics: Any, _topic: str, partition: int, **_: Any) -> Iterator[Any]:
        yield iter(stored if partition == partitions - 1 else [])

    connection: Any = SimpleNamespace(execute=execute)
    topics: Any = SimpleNamespace(partitions=lambda _topic: partitions)
    monkeypatch.setattr(surveys, "progress_records", records)
    monkeypatch.setattr(surveys, "commit_id_at", lambda _, batch: COMMIT if 0 < batch <= 30 else None)
    survey = ResumeSurvey(connection, Settings(), topics, OUTBOX, fenced=True)
    return survey.lane(LaneEpoch(EPOCH, None), 0, EPOCH)


FOREIGN = {
    "no record": StoredProgress(progress_key(1, 0), b"{}"),
    "a newer version's": StoredProgress(progress_key(1, 0), b'{"version": 2}'),
    "another outbox's": replace(OURS, outbox_uuid=UUID(int=9)),
    "numbered beyond any lane": replace(OURS, seq=GREATEST, commit_id=None),
    "counted beyond any lane": replace(OURS, total=Totals(0, GREATEST)),
}


@pytest.mark.parametrize("foreign", FOREIGN.values(), ids=FOREIGN)
def test_a_record_that_is_none_of_this_outbox_stops_no_resume(
    monkeypatch: pytest.MonkeyPatch, foreign: StoredProgress | Progress
) -> None:
    found = surveyed(monkeypatch, foreign, OURS)
    assert found.foreign is not None
    # It stops the lane, so the lane has to pass it.
    assert healthy(IDENTITY, found, 1) is None
    assert found.newest == found.shared == OURS
    assert found.known_seq == 7
    assert {target(found, way, 0, None) for way in (Way.KAFKA, Way.MIRROR)} == {Cursor(30)}


UNPROVEN = {
    "before the first batch, below what Postgres knows": replace(
        OURS, seq=3, cursor=Cursor(0), commit_id=None
    ),
    "at a batch that is not there": replace(OURS, seq=7, cursor=Cursor(10**9), commit_id=None),
    "as the lane's first": replace(OURS, seq=1, after=Cursor(0), cursor=Cursor(1), commit_id=UUID(int=5)),
}


@pytest.mark.parametrize("forged", UNPROVEN.values(), ids=UNPROVEN)
def test_a_record_that_anybody_could_have_written_hides_no_shared_one(
    monkeypatch: pytest.MonkeyPatch, forged: Progress
) -> None:
    """It would set the lane back to the beginning, or hide what a move leaves out."""
    found = surveyed(monkeypatch, forged, OURS)
    assert found.shared == OURS
    assert found.kafka == Cursor(30)


def test_a_resume_to_the_beginning_is_shared_where_postgres_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert surveyed(monkeypatch, BEGUN_ANEW).shared == BEGUN_ANEW
    assert surveyed(monkeypatch, replace(BEGUN_ANEW, seq=5)).shared is None


def test_a_lane_that_only_kafka_knows_begins_at_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    first = replace(OURS, seq=1, after=Cursor(0), cursor=Cursor(40), commit_id=UUID(int=5))
    found = surveyed(monkeypatch, first, seq=0)
    assert found.from_start
    assert found.kafka == Cursor(0)


def test_foreign_records_of_later_epochs_are_removed_with_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    later = replace(OURS, epoch=2, lane=3)
    foreign = StoredProgress(progress_key(5, 3), b"{}")
    aside: list[StoredProgress | Progress] = [
        StoredProgress(progress_key(4, 3), None),
        replace(later, epoch=4),
    ]
    found = surveyed(monkeypatch, foreign, later, *aside, partitions=4)
    assert found.later == {(5, 3): None, (2, 3): later}
    flood = [StoredProgress(progress_key(epoch, 0), b"{}") for epoch in range(2, 2_000)]
    with pytest.raises(StoppedError, match=r"over 1,000 lane epochs.*delete the topic.*--from mirror"):
        surveyed(monkeypatch, *flood)


@pytest.mark.parametrize("partitions", [1, 4])
def test_tombstones_of_others_fill_no_memory(monkeypatch: pytest.MonkeyPatch, partitions: int) -> None:
    lane = partitions - 1
    few = [StoredProgress(progress_key(epoch, lane), None) for epoch in range(2, 5_000)]
    assert surveyed(monkeypatch, *few, OURS, partitions=partitions).later == {}
    flood = (StoredProgress(progress_key(epoch, lane), None) for epoch in range(2, 110_000))
    with pytest.raises(StoppedError, match=r"over 100,000 lanes.*delete the topic.*--from mirror"):
        surveyed(monkeypatch, *flood, partitions=partitions)


def test_what_a_database_that_was_set_back_has_lost_is_not_beyond_any_lane(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ahead = replace(OURS, seq=7 + MOST_AHEAD, cursor=Cursor(90), commit_id=UUID(int=5))
    found = surveyed(monkeypatch, ahead, OURS)
    assert (found.foreign, found.newest, found.shared) == (None, ahead, OURS)
    assert found.known_seq + 1 < GREATEST
