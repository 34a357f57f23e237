"""A lane continues only where Kafka and Postgres tell one history."""

from dataclasses import replace
from uuid import UUID

import pytest

from contract.cursor import Cursor
from contract.progress import Progress
from publisher.protocol.history_check import (
    DeliveryPosition,
    Mirror,
    check_later,
    check_parked,
    continue_from,
)
from publisher.protocol.stop_reasons import StoppedError, StopReason
from tests.support.lanes import COMMIT, IDENTITY, OTHER, RECORD

MIRROR = Mirror(seq=7, cursor=Cursor(4, "key"), last_delivery=7)
START = DeliveryPosition(0, Cursor(0), None)
FRESH = Mirror(seq=0, cursor=Cursor(0), last_delivery=0)


def test_a_lane_that_never_ran_starts_at_its_epoch() -> None:
    assert continue_from(IDENTITY, None, FRESH, START, None) == START
    later = DeliveryPosition(0, Cursor(9), COMMIT)
    assert continue_from(IDENTITY, None, FRESH, later, COMMIT) == later


def test_a_lane_continues_from_kafka_s_record() -> None:
    assert continue_from(IDENTITY, RECORD, MIRROR, START, COMMIT) == DeliveryPosition(
        7, RECORD.cursor, COMMIT
    )


def test_a_mirror_one_behind_is_to_be_filled() -> None:
    behind = Mirror(seq=6, cursor=Cursor(3), last_delivery=6)
    assert continue_from(IDENTITY, RECORD, behind, START, COMMIT).unrecorded == RECORD


@pytest.mark.guarantee(85, 123)
@pytest.mark.parametrize(
    ("record", "mirror", "ledger", "why"),
    [
        pytest.param(None, MIRROR, None, StopReason.KAFKA_LOST, id="no record but a mirror"),
        pytest.param(
            None, replace(FRESH, last_delivery=1), None, StopReason.KAFKA_LOST, id="no record but a delivery"
        ),
        pytest.param(
            RECORD, replace(MIRROR, seq=8), COMMIT, StopReason.KAFKA_LOST, id="mirror ahead of Kafka"
        ),
        pytest.param(
            RECORD,
            replace(MIRROR, last_delivery=8),
            COMMIT,
            StopReason.KAFKA_LOST,
            id="delivery ahead of Kafka",
        ),
        pytest.param(
            RECORD, Mirror(5, Cursor(2), 5), COMMIT, StopReason.DATABASE_RESTORED, id="mirror two behind"
        ),
        pytest.param(RECORD, FRESH, COMMIT, StopReason.DATABASE_RESTORED, id="mirror empty"),
        pytest.param(
            RECORD,
            replace(MIRROR, cursor=Cursor(4)),
            COMMIT,
            StopReason.DATABASE_RESTORED,
            id="cursors differ",
        ),
        pytest.param(RECORD, MIRROR, OTHER, StopReason.DATABASE_RESTORED, id="another commit at the cursor"),
        pytest.param(RECORD, MIRROR, None, StopReason.DATABASE_RESTORED, id="no ledger row at the cursor"),
        pytest.param(
            replace(RECORD, outbox_uuid=OTHER), MIRROR, COMMIT, StopReason.OTHER_OUTBOX, id="another outbox"
        ),
        pytest.param(
            replace(RECORD, cluster_id="b"), MIRROR, COMMIT, StopReason.OTHER_CLUSTER, id="another cluster"
        ),
    ],
)
def test_two_histories_stop_the_lane(
    record: Progress | None, mirror: Mirror, ledger: UUID | None, why: StopReason
) -> None:
    with pytest.raises(StoppedError, match=rf"^{why}: .*publisher") as raised:
        continue_from(IDENTITY, record, mirror, START, ledger)
    assert raised.value.reason is why
    assert not raised.value.retry


def test_an_epoch_whose_predecessor_s_last_batch_is_missing_does_not_start() -> None:
    with pytest.raises(StoppedError, match="database_restored"):
        continue_from(IDENTITY, None, FRESH, DeliveryPosition(0, Cursor(9), None), None)


@pytest.mark.guarantee(73)
def test_fewer_parked_rows_than_were_passed_stop_the_lane() -> None:
    passed = replace(RECORD, parked=2)
    check_parked(RECORD, 0)
    check_parked(passed, 2)
    with pytest.raises(StoppedError, match="database_restored"):
        check_parked(passed, 1)


def test_a_resume_stands_though_postgres_does_not_know_it() -> None:
    resumed = replace(RECORD, resumed="--from mirror")
    assert continue_from(IDENTITY, resumed, Mirror(5, Cursor(2), 5), START, COMMIT).unrecorded == resumed
    with pytest.raises(StoppedError, match="database_restored"):
        continue_from(IDENTITY, resumed, Mirror(5, Cursor(2), 5), START, OTHER)
    with pytest.raises(StoppedError, match="kafka_lost"):
        continue_from(IDENTITY, resumed, Mirror(5, Cursor(2), 8), START, COMMIT)


def test_records_of_an_epoch_that_the_ledger_does_not_have_stop_the_lane() -> None:
    check_later([(2, 0)], 2)
    with pytest.raises(StoppedError, match=r"database_restored.*lane epoch 3.*resume --from kafka"):
        check_later([(2, 0), (3, 1)], 2)


def test_a_record_that_names_no_commit_stops_the_lane_unless_a_resume_is_known() -> None:
    """It would set the lane back to before the first batch, and everything would go out twice."""
    forged = replace(RECORD, seq=8, cursor=Cursor(0), commit_id=None)
    for record in (forged, replace(forged, resumed="--from batch 1")):
        with pytest.raises(StoppedError, match=r"other_outbox.*names no commit id"):
            continue_from(IDENTITY, record, MIRROR, START, None)
    resumed = replace(forged, resumed="--from batch 1")
    assert continue_from(IDENTITY, resumed, replace(MIRROR, resuming=True), START, None).unrecorded == resumed
    recorded = Mirror(seq=8, cursor=Cursor(0), last_delivery=8)
    assert continue_from(IDENTITY, resumed, recorded, START, None) == DeliveryPosition(8, Cursor(0), None)


def test_a_number_that_no_lane_reaches_is_another_writers_and_not_taken_over() -> None:
    """The next one would not fit into Postgres' columns, and the lane could never be moved again."""
    forged = replace(RECORD, seq=2**63 - 1, resumed="--from batch 9")
    with pytest.raises(StoppedError, match=r"other_outbox.*number 9223372036854775807.*--from mirror"):
        continue_from(IDENTITY, forged, MIRROR, START, COMMIT)


def test_a_record_within_the_ledger_always_names_its_commit() -> None:
    nameless = replace(RECORD, commit_id=None)
    with pytest.raises(StoppedError, match=r"other_outbox.*names no commit id"):
        continue_from(IDENTITY, nameless, MIRROR, START, None)
