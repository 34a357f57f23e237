"""What devstack promises of a replica: it follows, it can be cut off, it takes over for good."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest

from devstack.postgres import Postgres
from devstack.processes.errors import DevstackError
from tests.support.servers.replica import Replica, failover_dsn
from tests.support.waiting import wait_until

TIMEOUT_S = 60.0


@pytest.fixture
def primary(tmp_path: Path) -> Iterator[Postgres]:
    server = Postgres(tmp_path / "primary", fast=True)
    server.start()
    run(server, "CREATE TABLE t (n integer)")
    yield server
    server.destroy()


@pytest.fixture
def replica(tmp_path: Path, primary: Postgres) -> Iterator[Replica]:
    server = Replica(tmp_path / "replica", primary, fast=True)
    server.start()
    yield server
    server.destroy()


def run(server: Postgres, statement: LiteralString) -> None:
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute(statement)


def numbers(dsn: str) -> list[int]:
    with psycopg.connect(dsn) as connection:
        return [row[0] for row in connection.execute("SELECT n FROM t ORDER BY n")]


def test_it_follows_the_primary_and_takes_no_writes(primary: Postgres, replica: Replica) -> None:
    run(primary, "INSERT INTO t VALUES (1)")
    replica.wait_for_replay()
    assert numbers(replica.dsn()) == [1]
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        run(replica, "INSERT INTO t VALUES (2)")
    replica.restart()
    run(primary, "INSERT INTO t VALUES (2)")
    replica.wait_for_replay()
    assert numbers(replica.dsn()) == [1, 2]


def test_what_was_written_after_it_was_detached_is_lost_when_it_takes_over(
    primary: Postgres, replica: Replica
) -> None:
    run(primary, "INSERT INTO t VALUES (1)")
    replica.wait_for_replay()
    replica.detach()
    run(primary, "INSERT INTO t VALUES (2)")
    primary.kill()
    replica.promote()
    both = failover_dsn([primary, replica], "postgres")
    assert numbers(both) == [1]
    run(replica, "INSERT INTO t VALUES (3)")
    replica.restart()
    assert numbers(both) == [1, 3]


def test_a_commit_waits_for_a_synchronous_replica(tmp_path: Path, primary: Postgres) -> None:
    replica = Replica(tmp_path / "synchronous", primary, synchronous=True, fast=True)
    try:
        replica.start()
        replica.pause()
        with ThreadPoolExecutor(1) as pool, psycopg.connect(primary.dsn(), autocommit=True) as observer:
            written = pool.submit(run, primary, "INSERT INTO t VALUES (1)")
            try:
                _wait_for_a_commit_that_waits(observer)
                assert not written.done()
            finally:
                replica.resume()
            written.result(TIMEOUT_S)
    finally:
        replica.destroy()


def test_a_new_replica_without_its_primary_is_refused(tmp_path: Path, primary: Postgres) -> None:
    primary.stop()
    with pytest.raises(DevstackError, match="start the primary first"):
        Replica(tmp_path / "replica", primary).start()


def _wait_for_a_commit_that_waits(observer: psycopg.Connection[Any]) -> None:
    wait_until(
        lambda: observer.execute("SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep'").fetchall(),
        "a commit that waits for the replica",
        TIMEOUT_S,
    )
