"""Postgres fails in the middle of the sink's transaction: the batch is whole in the outbox or not there, and the next try finds out."""

from pathlib import Path
from typing import Any

import psycopg
import pytest

from db.migrate import upgrade
from devstack.postgres import Postgres
from service.errors import UnavailableError
from spark_job.failures.explain import explain
from spark_job.sink import ledger_rows
from spark_job.sink.commit import CommittedBatch
from tests.support.faults.outbox_batches import SESSIONS, Batches, connected
from tests.support.proxies.postgres import Cut, PostgresProxy, When
from tests.support.servers.postgres_on_small_disk import PostgresOnSmallDisk

DISK_MEGABYTES = 32


@pytest.mark.guarantee(22, 36)
@pytest.mark.parametrize("when", When)
def test_a_connection_cut_at_any_request_leaves_the_batch_whole_or_absent(database: str, when: When) -> None:
    """Also between the commit and its answer: the next start finds the batch and does not write it again."""
    batches = Batches(database)
    with PostgresProxy(database) as proxy:
        with connected(proxy.dsn) as connection:
            proxy.cut_at(None)
            batches.write(connection)
            requests = proxy.requests
        batches.written += 1
        found_there: list[int] = []
        for request in range(requests):
            with connected(proxy.dsn) as connection:
                proxy.cut_at(Cut(request, when))
                error = batches.fail(connection)
            assert proxy.has_cut
            assert isinstance(error, UnavailableError), error
            if batches.go_on() is None:
                found_there.append(request)
    # Reached the server: BEGIN, the lock, the rows, the ledger row, COMMIT. Only the cut behind the COMMIT leaves the batch there.
    assert requests > SESSIONS + 10
    assert found_there == ([requests - 1] if when is When.AFTER else [])


@pytest.mark.parametrize("row", [0, 1, SESSIONS])
def test_a_server_killed_during_copy_comes_back_without_a_trace_of_the_batch(
    own_postgres: Postgres, row: int
) -> None:
    dsn = own_postgres.create_database("outbox")
    upgrade(dsn)
    batches = Batches(dsn)
    with PostgresProxy(dsn) as proxy:
        batches.go_on()
        with connected(proxy.dsn) as connection:
            proxy.cut_at(Cut(row, among_rows=True, act=own_postgres.kill))
            with pytest.raises(psycopg.OperationalError) as caught:
                batches.write(connection)
        assert isinstance(explain(caught.value), UnavailableError)
        assert not own_postgres.is_running()
        own_postgres.start()
        batches.assert_whole()
        assert batches.stored() == 1
        assert batches.go_on() is not None


def test_a_lock_held_by_somebody_ends_the_wait_and_names_the_setting(database: str) -> None:
    batches = Batches(database)
    with psycopg.connect(database) as blocker, connected(database, lock_timeout_ms=200) as connection:
        blocker.execute("LOCK TABLE outbox.batch IN SHARE MODE")
        error = batches.fail(connection)
        assert isinstance(error, UnavailableError)
        assert "lock_timeout_ms" in str(error)
        blocker.rollback()
        # The connection has survived; nothing of the first try is in the way.
        assert batches.write(connection) is not None
    batches.written += 1
    batches.assert_whole()


@pytest.mark.guarantee(57)
def test_a_writer_that_stands_still_in_its_transaction_loses_it_and_blocks_nobody(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is stopped there would hold the writer lock for ever."""
    batches = Batches(database)
    successor: list[CommittedBatch | None] = []
    insert_rows = ledger_rows.insert_rows

    def stand_still(*arguments: Any, **options: Any) -> None:
        monkeypatch.setattr(ledger_rows, "insert_rows", insert_rows)
        # Waits for the writer lock, which this transaction holds, until Postgres ends it.
        successor.append(batches.go_on())
        insert_rows(*arguments, **options)

    monkeypatch.setattr(ledger_rows, "insert_rows", stand_still)
    with connected(database, idle_in_transaction_timeout_ms=300) as connection:
        with pytest.raises(psycopg.Error) as caught:
            batches.write(connection)
        error = explain(caught.value)
    assert isinstance(error, UnavailableError)
    assert "idle_in_transaction_timeout_ms" in str(error)
    assert [type(each) for each in successor] == [CommittedBatch]
    batches.assert_whole()
    assert batches.stored() == 1


@pytest.mark.guarantee(37)
def test_a_full_disk_is_named_nothing_is_half_written_and_room_is_all_it_takes(tmp_path: Path) -> None:
    server = PostgresOnSmallDisk(tmp_path / "postgres", DISK_MEGABYTES)
    try:
        server.start()
        dsn = server.create("outbox")
        upgrade(dsn)
        batches = Batches(dsn)
        batches.go_on()
        server.fill()
        with connected(dsn) as connection:
            error = batches.fail(connection)
            assert isinstance(error, UnavailableError)
            assert "the disk of Postgres is full" in str(error)
            assert "No space left on device" in str(error)
            assert batches.stored() == 1
            server.make_room()
            assert batches.write(connection) is not None
        batches.written += 1
        batches.assert_whole()
        assert batches.go_on() is not None
    finally:
        server.destroy()
