"""What a resume repeats, skips and trusts, for all that Kafka and Postgres may say."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.cursor import Cursor
from contract.progress import lane_of_key, progress_key
from publisher.protocol.epochs import Epoch
from publisher.resume.decision import LaneSurvey, Way, healthy, move, target
from service.errors import ContinuityError
from tests.support.surveys import IDENTITY, found, record


def at(lane: LaneSurvey, way: Way, batch: int = 0) -> Cursor:
    return target(lane, way, batch, healthy(IDENTITY, lane, 1))


def test_a_restored_database_continues_after_the_newest_record_that_it_shares() -> None:
    shared = record(3, Cursor(5, "key"), events=30)
    lane = found(record(9, Cursor(20), events=100), shared, seq=2, cursor=Cursor(4))
    assert at(lane, Way.KAFKA) == Cursor(5, "key")
    assert at(lane, Way.MIRROR) == Cursor(4)
    assert move(lane, Cursor(5, "key")).unknown.events == 70
    assert move(lane, Cursor(4)).again == (Cursor(4), Cursor(5, "key"))
    assert lane.known_seq == 9


def test_without_a_shared_record_kafka_does_not_say_where_to_continue() -> None:
    for lane in (found(record(9, Cursor(20)), seq=2, cursor=Cursor(4)), found(seq=2, cursor=Cursor(4))):
        with pytest.raises(ContinuityError, match="--from mirror"):
            at(lane, Way.KAFKA)


def test_a_history_that_begins_in_kafka_begins_again_at_the_start() -> None:
    lane = replace(found(record(9, Cursor(20), events=50)), from_start=True)
    assert at(lane, Way.KAFKA) == Cursor(0)
    assert move(lane, Cursor(0)).unknown.events == 50


def test_a_lost_kafka_is_filled_from_the_start_or_trusted_to_the_mirror() -> None:
    lane = found(seq=7, cursor=Cursor(30))
    assert move(lane, at(lane, Way.MIRROR)).trusted == (Cursor(0), Cursor(30))
    beginning = move(lane, at(lane, Way.BEGINNING, 1))
    assert beginning.again == (Cursor(0), Cursor(30))
    assert beginning.trusted == (Cursor(0), Cursor(0))


def test_a_lane_that_is_only_one_behind_continues_where_kafka_is() -> None:
    newest = record(7, Cursor(30))
    lane = found(newest, newest, seq=6, cursor=Cursor(29))
    assert at(lane, Way.MIRROR) == at(lane, Way.KAFKA) == Cursor(30)


def test_a_batch_is_kept_within_its_epoch() -> None:
    lane = replace(found(), epoch=Epoch(2, 10, 1), epoch_end=19)
    assert at(lane, Way.BATCH, 5) == Cursor(9)
    assert at(lane, Way.BATCH, 15) == Cursor(14)
    assert at(lane, Way.BATCH, 40) == Cursor(19)


def test_a_resume_that_postgres_does_not_know_stands() -> None:
    newest = record(12, Cursor(30), resumed="--from mirror")
    position = healthy(IDENTITY, found(newest, newest, seq=5, cursor=Cursor(8)), 1)
    assert position is not None
    assert position.unrecorded is newest


cursors = st.builds(Cursor, st.integers(0, 9), st.none())


@pytest.mark.guarantee(88)
@given(cursors, cursors, cursors)
def test_every_row_is_sent_again_skipped_trusted_or_neither(
    kafka: Cursor, mirror: Cursor, to: Cursor
) -> None:
    shared = record(3, kafka)
    lane = found(shared, shared, seq=3, cursor=mirror)
    planned = move(lane, to)
    for batch in range(1, 10):
        row = Cursor(batch)
        within = [span.after < row <= span.to for span in (planned.again, planned.skipped, planned.trusted)]
        delivered = row <= max(kafka, mirror)
        assert within[0] == (delivered and row > to)
        assert within[1] == (not delivered and row <= to)
        assert within[2] == (kafka < row <= min(to, mirror))


@given(st.integers(0, 10**6), st.integers(0, 1023))
def test_a_key_names_its_lane(epoch: int, lane: int) -> None:
    assert lane_of_key(progress_key(epoch, lane)) == (epoch, lane)
    assert lane_of_key(b"replay") is lane_of_key(None) is None
    assert lane_of_key(b"1" * 5_000 + b"/0") is None
