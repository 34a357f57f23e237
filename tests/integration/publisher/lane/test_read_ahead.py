"""What a lane read ahead, while Kafka committed, is delivered only if it is still what a read of now would find."""

from typing import Any

import pytest
from psycopg import OperationalError

from devstack.kafka import KafkaServer
from publisher.outbox.deliveries import record_delivery
from service.lifecycle.fault_points import InjectedFaultError
from tests.support.outbox.batches import Outbox, Session, simple
from tests.support.outbox.deliveries import assert_exactly_once, drained
from tests.support.processes.publishers import RelayThread, settings_for
from tests.support.queries import query
from tests.support.waiting import wait_until
from tests.support.watching import Watcher

ROWS = 4
"""Of a transaction here."""


@pytest.fixture
def outbox(database: str, topic: str) -> Outbox:
    """An empty outbox with one lane."""
    return Outbox(database, topic, lanes=1)


@pytest.mark.guarantee(59)
@pytest.mark.parametrize("first_changed", [1, 2], ids=["before the chunk", "within the chunk"])
def test_a_database_restored_after_a_chunk_was_read_ahead_is_noticed_before_the_chunk_is_sent(
    outbox: Outbox, kafka: KafkaServer, watcher: Watcher, monkeypatch: pytest.MonkeyPatch, first_changed: int
) -> None:
    restored: list[object] = []

    def restore_and_record(*arguments: Any) -> bool:
        if arguments[5] is not None and not restored:
            restored.append(arguments[5])
            # As after a restore that the writer went on from: the same batch ids, other commits.
            query(
                outbox.dsn,
                "UPDATE outbox.batch SET commit_id = gen_random_uuid() WHERE batch_id >= %s",
                first_changed,
            )
        return record_delivery(*arguments)

    monkeypatch.setattr("publisher.lane.lane.record_delivery", restore_and_record)
    outbox.batch(simple(1, keys=ROWS, events=1))
    outbox.batch(simple(2, keys=2 * ROWS, events=1))
    with RelayThread(settings_for(outbox.dsn, kafka.bootstrap_servers, transaction_sessions=ROWS)) as relay:
        if first_changed == 1:
            # What was delivered is gone from the ledger: nothing after it may go out.
            wait_until(relay.ended, "the stop")
            assert "database_restored" in str(relay.error)
            outbox.written = outbox.written[:ROWS]
        else:
            # What was delivered stands, so the batch that came instead goes out, as itself.
            wait_until(lambda: relay.ended() or drained(outbox.dsn), "everything")
            assert relay.error is None
    assert restored
    assert_exactly_once(outbox, watcher)


@pytest.mark.guarantee(59)
@pytest.mark.parametrize("step", ["Kafka's commit", "the record"])
def test_a_failure_with_rows_read_ahead_neither_loses_nor_repeats_them(
    outbox: Outbox, kafka: KafkaServer, watcher: Watcher, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    failed: list[str] = []

    def commit_fails(point: str) -> None:
        if point == "transaction.before_commit" and not failed:
            failed.append(point)
            raise InjectedFaultError

    def record_fails(*arguments: Any) -> bool:
        if len(arguments) > 5 and arguments[5] is not None and not failed:
            failed.append("record")
            raise OperationalError("the connection was lost")
        return record_delivery(*arguments)

    if step == "the record":
        monkeypatch.setattr("publisher.lane.lane.record_delivery", record_fails)
    else:
        monkeypatch.setattr("publisher.delivery.transaction.reach", commit_fails)
    outbox.batch(simple(1, keys=5 * ROWS))
    with RelayThread(settings_for(outbox.dsn, kafka.bootstrap_servers, transaction_sessions=ROWS)):
        wait_until(lambda: drained(outbox.dsn), "everything")
    assert failed
    assert_exactly_once(outbox, watcher)


def test_a_row_parked_while_it_is_read_ahead_is_passed_over(
    outbox: Outbox, kafka: KafkaServer, watcher: Watcher
) -> None:
    sessions = simple(1, keys=3 * ROWS)
    refused = f"k{ROWS + 1:04d}"
    outbox.batch(sessions | {refused: [Session([b"1"], 7, partitions=[99])]})
    with RelayThread(settings_for(outbox.dsn, kafka.bootstrap_servers, transaction_sessions=ROWS)):
        wait_until(lambda: drained(outbox.dsn), "everything else")
    outbox.written = [event for event in outbox.written if event[0] != refused.encode()]
    assert_exactly_once(outbox, watcher)
    assert query(outbox.dsn, "SELECT session_key FROM outbox.parked") == [(refused,)]
