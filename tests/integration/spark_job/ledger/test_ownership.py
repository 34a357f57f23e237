"""One run writes: takeovers, heartbeats, and a connection lost at the worst moment."""

import threading
from uuid import uuid4

import psycopg
import pytest
from pydantic import SecretStr

from db.connection import Connection
from service.errors import FencedError, UnavailableError
from service.settings import JobSettings, PostgresSettings
from spark_job import OutputEvent
from spark_job.ledger import ownership
from spark_job.ledger.owner_heartbeat import OwnerHeartbeat
from spark_job.monitoring.health import JobHealth
from spark_job.sink import ledger_rows
from tests.support.sink.batches import SinkRun, session
from tests.support.waiting import wait_until

SETTINGS = JobSettings(heartbeat_s=0.2, owner_timeout_s=1)
ROLE = "-c role=outbox_writer"


def as_postgres(database: str) -> PostgresSettings:
    return PostgresSettings(dsn=SecretStr(f"{database}?options=-c%20role%3Doutbox_writer"))


def own(connection: Connection, *, force: bool = False) -> None:
    with connection.transaction():
        ownership.take_over(connection, uuid4(), SETTINGS, force=force)


@pytest.mark.guarantee(175)
def test_a_second_run_is_refused_while_the_first_is_alive(database: str, connection: Connection) -> None:
    own(connection)
    with (
        psycopg.connect(database, autocommit=True, options=ROLE) as other,
        pytest.raises(FencedError, match="--take-over"),
    ):
        own(other)


def test_a_run_whose_connection_is_gone_is_dead_at_once(database: str) -> None:
    with psycopg.connect(database, autocommit=True, options=ROLE) as first:
        own(first)
    with psycopg.connect(database, autocommit=True, options=ROLE) as second:
        own(second)


def test_a_process_takes_over_from_its_own_former_run_although_that_seems_alive(
    database: str, connection: Connection
) -> None:
    """After a cut network Postgres still sees the old connection; the restart inside the process must not wait for it."""
    former, run_id = SinkRun(connection).run_id, uuid4()
    with psycopg.connect(database, autocommit=True, options=ROLE) as other, other.transaction():
        ownership.take_over(other, run_id, SETTINGS, force=False, own={former})
        assert ownership.read_owner(other).run_id == run_id
    with pytest.raises(FencedError), connection.transaction():
        ownership.lock_and_check(connection, former)


def test_a_run_without_heartbeats_is_dead_after_its_timeout(database: str, connection: Connection) -> None:
    own(connection)
    with psycopg.connect(database, autocommit=True) as other:
        other.execute("UPDATE outbox.writer SET heartbeat_at = clock_timestamp() - interval '2 s'")
        own(other)


def test_a_batch_in_progress_does_not_hold_up_the_heartbeat(database: str, connection: Connection) -> None:
    """A long transaction must not make a healthy owner look dead."""
    run_id = uuid4()
    with connection.transaction():
        ownership.take_over(connection, run_id, SETTINGS, force=False)
    fenced = threading.Event()
    with connection.transaction():
        ownership.lock_and_check(connection, run_id)
        with (
            psycopg.connect(database, autocommit=True) as observer,
            OwnerHeartbeat(
                as_postgres(database),
                run_id,
                0.05,
                on_fenced=fenced.set,
                on_request=print,
                health=JobHealth(),
            ),
        ):
            heartbeat = "SELECT heartbeat_at FROM outbox.writer"
            first = observer.execute(heartbeat).fetchone()
            wait_until(
                lambda: observer.execute(heartbeat).fetchone() != first,
                "a heartbeat while the writer lock is held",
                10,
            )
    assert not fenced.is_set()


def test_the_heartbeat_reports_a_takeover(database: str, connection: Connection) -> None:
    sink_run, fenced = SinkRun(connection), threading.Event()
    run_id = sink_run.run_id
    with OwnerHeartbeat(
        as_postgres(database), run_id, 0.05, on_fenced=fenced.set, on_request=print, health=JobHealth()
    ):
        own(connection, force=True)
        assert fenced.wait(10)
    assert isinstance(ownership.ask_disowned(as_postgres(database), run_id), FencedError)


def test_two_runs_that_start_at_once_have_one_winner(database: str) -> None:
    results: list[str] = []
    barrier = threading.Barrier(4)

    def start() -> None:
        with psycopg.connect(database, autocommit=True, options=ROLE) as connection:
            barrier.wait()
            try:
                own(connection)
                results.append("owner")
            except FencedError:
                results.append("refused")
            barrier.wait()

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == ["owner", "refused", "refused", "refused"]


def test_release_lets_the_next_run_in(database: str, connection: Connection) -> None:
    run_id = uuid4()
    with connection.transaction():
        ownership.take_over(connection, run_id, SETTINGS, force=False)
    ownership.release(as_postgres(database), run_id, "test")
    assert ownership.read_owner(connection).run_id is None


@pytest.mark.guarantee(44)
def test_a_connection_closed_before_the_commit_is_never_reported_as_success(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """psycopg ends such a transaction silently; Spark would be told that the batch is stored."""
    sink_run = SinkRun(connection)
    sink_run.plan(0, (0, 0), (100, 50))
    insert = ledger_rows.insert_rows

    def insert_and_lose_the_connection(*arguments: object, **options: object) -> None:
        insert(*arguments, **options)  # type: ignore[arg-type]
        connection.close()

    monkeypatch.setattr(ledger_rows, "insert_rows", insert_and_lose_the_connection)
    with pytest.raises(UnavailableError, match="was closed during a transaction"):
        sink_run.write(0, session("a", 0, 9, [OutputEvent("t", b"v")]))
    with psycopg.connect(database) as other:
        assert other.execute("SELECT count(*) FROM outbox.batch").fetchone() == (0,)
