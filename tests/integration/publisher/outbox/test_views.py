"""What processes and people see of lanes in Postgres alone, whatever state those are in. Needs no Kafka."""

import uuid
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from db.statements import queries
from publisher.assignment.heartbeat import ProcessHeartbeat
from publisher.assignment.membership import read_living, read_view
from publisher.cli import app
from publisher.monitoring.health import ProcessHealth
from publisher.outbox.identity import read_identity
from tests.support.outbox.batches import Outbox, simple
from tests.support.outbox.deliveries import status_of
from tests.support.outbox.old_outputs import deliver_all
from tests.support.processes.publishers import settings_for
from tests.support.queries import query
from tests.support.waiting import wait_until

_LANES = queries("publisher", "lanes")


@pytest.fixture
def outbox(database: str) -> Outbox:
    """An empty outbox with two lanes that no publisher has seen."""
    return Outbox(database, "out")


def lags(outbox: Outbox) -> list[tuple[int, int, int, int]]:
    return [(lane.epoch, lane.lane, lane.lag_batches, lane.lag_rows) for lane in status_of(outbox.dsn).lanes]


def hold(outbox: Outbox, epoch: int, holder: str = "somebody") -> None:
    """Let a lease be held by a backend that lives as long as the server."""
    query(
        outbox.dsn,
        "UPDATE outbox.lane SET lease_holder = %s, lease_until = now() + interval '1 hour',"
        " (lease_backend_pid, lease_backend_start) = (SELECT pid, backend_start FROM pg_stat_activity"
        " WHERE backend_type = 'checkpointer') WHERE epoch = %s",
        holder,
        epoch,
    )


def test_lanes_that_no_publisher_has_begun_show_their_backlog_and_are_not_healthy(outbox: Outbox) -> None:
    assert status_of(outbox.dsn).healthy
    outbox.batch(simple(1, keys=4))
    assert lags(outbox) == [(1, 0, 1, 2), (1, 1, 1, 2)]
    assert not status_of(outbox.dsn).healthy


def test_an_epoch_that_waits_for_a_running_one_shows_its_backlog_and_is_healthy(outbox: Outbox) -> None:
    outbox.batch(simple(1, keys=4))
    deliver_all(outbox.dsn, 1)
    outbox.batch(simple(2, keys=4))
    outbox.add_epoch(2, 3, 1)
    outbox.batch(simple(3, keys=4))
    hold(outbox, 1)
    assert lags(outbox) == [(1, 0, 1, 2), (1, 1, 1, 2), (2, 0, 1, 4)]
    assert status_of(outbox.dsn).healthy
    deliver_all(outbox.dsn, 2)
    query(
        outbox.dsn, "UPDATE outbox.lane SET lease_holder = NULL, lease_until = NULL, lease_backend_pid = NULL"
    )
    assert lags(outbox) == [(2, 0, 1, 4)]
    assert not status_of(outbox.dsn).healthy, "nobody has begun it, and nobody is about to"


def test_after_a_restart_of_postgres_leases_count_in_status_as_they_do_for_the_publishers(
    outbox: Outbox,
) -> None:
    outbox.batch(simple(1, keys=4))
    query(outbox.dsn, "INSERT INTO outbox.lane (epoch, lane) VALUES (1, 0), (1, 1)")
    query(
        outbox.dsn,
        "UPDATE outbox.lane SET lease_holder = 'somebody', lease_until = now() + interval '1 hour',"
        " lease_backend_pid = 1, lease_backend_start = pg_postmaster_start_time() - interval '1 second'",
    )
    assert [lane.holder for lane in status_of(outbox.dsn).lanes] == ["somebody", "somebody"]
    assert status_of(outbox.dsn).healthy


def test_a_lane_whose_earlier_epoch_was_set_back_learns_of_it_when_it_opens(outbox: Outbox) -> None:
    outbox.batch(simple(1, keys=4))
    outbox.add_epoch(2, 2, 1)
    outbox.batch(simple(2, keys=4))
    deliver_all(outbox.dsn, 1)
    query(outbox.dsn, "INSERT INTO outbox.lane (epoch, lane, lease_token) VALUES (2, 0, 7)")

    def earlier_open() -> bool:
        with psycopg.connect(outbox.dsn) as connection:
            held = {"epoch": 2, "lane": 0, "lease_token": 7}
            row = connection.execute(_LANES["state"], held).fetchone()
            assert row is not None
            return bool(row[5])

    assert not earlier_open()
    # What a resume into epoch 1 does.
    query(
        outbox.dsn,
        "UPDATE outbox.lane SET cursor_batch = 0, cursor_commit_id = NULL WHERE epoch = 1 AND lane = 1",
    )
    assert earlier_open()


def test_a_lane_too_many_does_not_end_its_epoch(outbox: Outbox) -> None:
    outbox.batch(simple(1, keys=4))
    outbox.add_epoch(2, 2, 1)
    deliver_all(outbox.dsn, 1, lanes=3)
    query(outbox.dsn, "UPDATE outbox.lane SET cursor_batch = 0, cursor_commit_id = NULL WHERE lane = 1")
    with psycopg.connect(outbox.dsn, autocommit=True) as connection:
        view = read_view(connection)
    assert view.epoch is not None
    assert view.epoch.epoch == 1


@pytest.mark.parametrize(("me", "holder"), [("me", "me"), ("another", None), (None, None)])
def test_a_process_whose_heartbeat_is_being_connected_anew_keeps_what_it_holds(
    outbox: Outbox, me: str | None, holder: str | None
) -> None:
    outbox.batch(simple(1, keys=4))
    query(
        outbox.dsn,
        "INSERT INTO outbox.lane (epoch, lane, lease_holder, lease_until, lease_backend_pid, lease_backend_start)"
        " VALUES (1, 0, 'me', now() + interval '1 hour', 1, now()), (1, 1, 'me', now() - interval '1 s', 1, now())",
    )
    with psycopg.connect(outbox.dsn, autocommit=True) as connection:
        assert read_view(connection, me).holders == {0: holder, 1: None}


def test_a_process_lives_again_soon_after_its_heartbeat_lost_its_connection(outbox: Outbox) -> None:
    settings = settings_for(outbox.dsn, "nowhere:9092", lease_s=600)
    with psycopg.connect(outbox.dsn, autocommit=True) as connection:
        identity = read_identity(connection)
        me = str(uuid.uuid4())
        shared: Any = SimpleNamespace(settings=settings, outbox=identity, holder=me)
        heartbeat = ProcessHeartbeat(shared, ProcessHealth())
        heartbeat.start()
        try:
            wait_until(lambda: [each.process_id for each in read_living(connection)] == [me], "the process")
            backend = "SELECT backend_pid FROM outbox.publisher_process"
            (before,) = query(outbox.dsn, backend)
            query(outbox.dsn, "SELECT pg_terminate_backend(%s)", *before)
            wait_until(lambda: query(outbox.dsn, backend) != [before], "its return", 30)
            assert [each.process_id for each in read_living(connection)] == [me]
        finally:
            heartbeat.end(10)
        assert read_living(connection) == []


def test_status_says_what_was_delivered_lately_what_is_parked_and_how_often_lanes_changed_hands(
    outbox: Outbox,
) -> None:
    outbox.batch(simple(1, keys=4))
    query(
        outbox.dsn,
        "INSERT INTO outbox.lane (epoch, lane, lease_token, taken) VALUES (1, 0, 6, 3), (1, 1, 9, 4)",
    )
    query(
        outbox.dsn,
        "INSERT INTO outbox.delivery (epoch, lane, seq, to_batch, sessions, events, kind, committed_at)"
        " SELECT 1, n %% 2, n, 1, 10, 600, kind, now() - age FROM (VALUES"
        " (1, 'delivery', interval '10 min'), (2, 'delivery', interval '2 min'), (3, 'resume', interval '1 s'),"
        " (4, 'delivery', interval '1 s')) AS d (n, kind, age)",
    )
    query(
        outbox.dsn,
        "INSERT INTO outbox.parked (session_key, batch_id, epoch, lane, lease_token, reason, detail)"
        " SELECT session_key, batch_id, 1, lane, 1, 'too_large', 'x' FROM outbox.session_output LIMIT 2",
    )
    shown = status_of(outbox.dsn).as_json()
    assert shown["rates"] == [
        {"seconds": 60, "transactions": 1, "sessions": 10, "events": 600, "events_per_second": 10.0},
        {"seconds": 300, "transactions": 2, "sessions": 20, "events": 1_200, "events_per_second": 4.0},
    ]
    assert shown["parked_rows"] == {"too_large": 2, "invalid": 0, "topic_missing": 0}
    assert (shown["lanes_taken"], shown["replays"]) == (7, {"running": 0, "paused": 0})
    printed = CliRunner().invoke(app, ["status"], env={"OUTBOX_POSTGRES__DSN": outbox.dsn}).output
    assert "last 300 s: 2 transactions, 20 sessions, 1,200 events, 4.0 events/s" in printed
    assert "parked now: 2 too_large" in printed
