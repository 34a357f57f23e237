"""What retention leaves is enough to continue from, and what it took is said as it is. Needs no Kafka."""

from collections.abc import Iterator

import psycopg
import pytest

from db.statements import queries
from publisher.resume.survey import read_ledger
from publisher.retention.retention import run_once
from tests.support.outbox.batches import Outbox
from tests.support.outbox.old_outputs import (
    PARTITION,
    add_batches,
    deliver_all,
    partitions,
    retention_settings,
)
from tests.support.queries import query

_LANES = queries("publisher", "lanes")

NEWEST = 3 * PARTITION + 5


@pytest.fixture
def old(database: str) -> Outbox:
    """Three full partitions of old, delivered batches and one in use."""
    outbox = Outbox(database, "out")
    outbox.batch({})
    add_batches(database, NEWEST)
    deliver_all(database, NEWEST)
    return outbox


@pytest.fixture
def connection(old: Outbox) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    with psycopg.connect(old.dsn, autocommit=True) as connected:
        yield connected


@pytest.mark.guarantee(96)
def test_a_lane_can_continue_from_the_first_batch_that_retention_has_kept(
    old: Outbox, connection: psycopg.Connection[tuple[object, ...]]
) -> None:
    run_once(retention_settings(old.dsn, keep_ledger_s=3_600))
    first = read_ledger(connection).first_kept
    assert first == 3 * PARTITION
    # A lane that sends from this batch on continues after the one before, whose ledger row it must find.
    assert query(old.dsn, "SELECT batch_id FROM outbox.batch WHERE batch_id < %s", first) == [(first - 1,)]


@pytest.mark.guarantee(96)
def test_what_a_restart_stands_on_stays_however_many_batches_follow_and_what_a_savepoint_names_does_not(
    old: Outbox,
) -> None:
    """Retries are no positions of the stream: the newest one that is may lie far behind."""
    query(
        old.dsn,
        "UPDATE outbox.batch SET kind = 'retry', spark_batch = NULL, start_offsets = NULL, end_offsets = NULL, open_state = NULL"
        " WHERE batch_id > 5",
    )
    query(
        old.dsn,
        "INSERT INTO outbox.savepoint (name, generation, batch_id, end_offsets, open_state, lineage, assembly, topics, revision)"
        " VALUES ('monday', 1, 3, '{}', '{}', '[]', '{}', '{}', 0)",
    )
    run_once(retention_settings(old.dsn, keep_ledger_s=3_600))
    assert len(partitions(old.dsn)) > 0
    left = query(old.dsn, "SELECT batch_id FROM outbox.batch WHERE batch_id < %s ORDER BY 1", 3 * PARTITION)
    assert left == [(5,), (3 * PARTITION - 1,)]


def test_holes_that_retention_leaves_are_known_besides_what_lies_before_the_first_kept_batch(
    old: Outbox, connection: psycopg.Connection[tuple[object, ...]]
) -> None:
    query(
        old.dsn,
        "INSERT INTO outbox.parked (session_key, batch_id, epoch, lane, lease_token, reason, detail)"
        " VALUES ('k', 10001, 1, 0, 1, 'too_large', 'MSG_SIZE_TOO_LARGE')",
    )
    run_once(retention_settings(old.dsn))
    assert partitions(old.dsn)[:2] == ["1", "3"]
    ledger = read_ledger(connection)
    assert ledger.dropped(5) == [(5, 9_999), (20_000, 29_999)]
    assert ledger.dropped(10_001) == [(20_000, 29_999)]
    assert ledger.dropped(25_000) == [(25_000, 29_999)]
    assert ledger.dropped(30_000) == []


@pytest.mark.guarantee(95)
def test_what_a_resume_that_did_not_end_may_send_again_stays_although_the_mirror_is_beyond_it(
    old: Outbox,
) -> None:
    query(
        old.dsn,
        "UPDATE outbox.lane SET stopped_reason = 'resuming: to batch 1', stopped_why = 'resuming' WHERE lane = 1",
    )
    # What the publisher that takes the lane over says while it cannot continue yet.
    held = {"epoch": 1, "lane": 1, "lease_token": 0}
    with psycopg.connect(old.dsn, autocommit=True) as connection:
        retrying = held | {"explanation": "retrying: Kafka is away", "reason": None, "runs": False}
        assert connection.execute(_LANES["set_stopped"], retrying).rowcount == 1
        report = run_once(retention_settings(old.dsn, keep_ledger_s=3_600))
        assert (report.dropped, report.pruned.batches) == ([], 0)
        assert "lane 1 of epoch 1" in report.survey.refused[0].reasons[0]
        assert "retrying: Kafka is away" in report.survey.refused[0].reasons[0]
        # Once it runs.
        connection.execute(_LANES["set_stopped"], held | {"explanation": None, "reason": None, "runs": True})
    report = run_once(retention_settings(old.dsn))
    assert len(report.dropped) == 3
