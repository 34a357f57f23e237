"""A key is erased only once no replay can send it: not by an older list of rows, a cancelled process, or a partition that was away."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest

from db.connection import connect
from publisher.delivery.context import Context
from publisher.protocol.replay_targets import ReplayTargets
from publisher.replay.selection import Filters, ReplayRange
from publisher.replay.starting import ReplayRequest, Tick, make, make_plan
from publisher.replay.store import NewReplay, ReplayLease, create
from service.settings import Settings
from tests.support.outbox.batches import Outbox, Session, simple
from tests.support.outbox.old_outputs import add_batches, deliver_all
from tests.support.outbox.replays import replay
from tests.support.processes.erasing import appears, erased, whole_dump
from tests.support.processes.publishers import settings_for
from tests.support.queries import query

KEY = "person-4711"
FIRST = "session_output_p00000000"


@pytest.fixture
def outbox(database: str) -> Outbox:
    """Without Kafka: what a publisher would have delivered counts as delivered."""
    made = Outbox(database, "out")
    made.batch({KEY: [Session([b"value"], 7)]} | simple(1, 2))
    made.batch(simple(2, 2))
    deliver_all(database, 2)
    return made


@pytest.fixture
def settings(outbox: Outbox) -> Settings:
    return settings_for(outbox.dsn, "127.0.0.1:1")


@contextmanager
def at_work(settings: Settings, *keys: str) -> Iterator[tuple[int, psycopg.Connection[Any], ReplayLease]]:
    """A process that works on a replay of these keys, of all without any: the replay, its connection and its lease."""
    new = NewReplay(1, 1, None, {}, None, "cluster", "servers", None, 1, 1, False)
    with connect(settings.postgres, "a test", autocommit=True) as connection:
        number = create(connection, new, keys or None).replay_id
    with connect(settings.postgres, "a test", autocommit=True) as connection:
        lease = ReplayLease.claim(connection, number, "a test", 3_600, paused_too=False)
        assert lease is not None
        yield number, connection, lease


@contextmanager
def detached(dsn: str) -> Iterator[None]:
    """Within the block the first partition is detached, as by hand."""
    ((bounds,),) = query(
        dsn, "SELECT pg_get_expr(relpartbound, oid) FROM pg_class WHERE oid = %s::regclass", f"outbox.{FIRST}"
    )
    query(dsn, f"ALTER TABLE outbox.session_output DETACH PARTITION outbox.{FIRST}")
    yield
    query(dsn, f"ALTER TABLE outbox.session_output ATTACH PARTITION outbox.{FIRST} {bounds}")


@pytest.mark.guarantee(95, 182)
def test_a_partition_stays_while_a_cancelled_replays_process_may_send_its_rows(
    outbox: Outbox, settings: Settings
) -> None:
    add_batches(outbox.dsn, 10_005)
    deliver_all(outbox.dsn, 10_005)
    with at_work(settings) as (number, connection, lease):
        assert replay(settings, "cancel", str(number)).exit_code == 0
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="a replay still reads it"):
            query(outbox.dsn, "SELECT outbox.drop_partition(%s)", FIRST)
        (left,) = erased(settings, KEY, code=1)["keys"][0]["left"]
        assert left.startswith(f"replay {number} needs the row")
        assert lease.still_held(connection)
        lease.release(connection, None, may_be_open=False)
    assert erased(settings, KEY)["keys"][0]["rows"] == 1
    query(outbox.dsn, "SELECT outbox.drop_partition(%s)", FIRST)


@pytest.mark.guarantee(182)
def test_a_replay_by_key_needs_its_row_also_once_a_partition_is_back(
    outbox: Outbox, settings: Settings
) -> None:
    with at_work(settings, KEY) as (number, connection, lease):
        with detached(outbox.dsn):
            assert "detached" in erased(settings, KEY, code=1)["keys"][0]["left"][0]
        (left,) = erased(settings, KEY, code=1)["keys"][0]["left"]
        assert left.startswith(f"replay {number} needs the row")
        assert lease.still_held(connection)


def test_a_parked_row_of_a_dropped_partition_goes(outbox: Outbox, settings: Settings) -> None:
    add_batches(outbox.dsn, 10_005)
    deliver_all(outbox.dsn, 10_005)
    query(
        outbox.dsn,
        "INSERT INTO outbox.parked (session_key, batch_id, epoch, lane, lease_token, reason, detail)"
        " SELECT session_key, batch_id, 1, lane, 1, 'invalid', 'x' FROM outbox.session_output WHERE session_key = %s",
        KEY,
    )
    query(outbox.dsn, f"ALTER TABLE outbox.session_output DETACH PARTITION outbox.{FIRST}")
    query(outbox.dsn, f"DROP TABLE outbox.{FIRST}")
    assert erased(settings, KEY)["keys"][0]["left"] == []
    assert not appears(whole_dump(outbox.dsn), KEY.encode())


def test_a_replay_that_was_planned_before_stores_no_erased_key(outbox: Outbox, settings: Settings) -> None:
    @contextmanager
    def counting(_: ReplayRange) -> Iterator[Tick]:
        yield lambda _: None

    request = ReplayRequest(Filters(keys=(KEY, "k0001")), ReplayTargets(), None, None, None, False)
    with connect(settings.postgres, "a test", autocommit=True) as connection:
        plan = make_plan(connection, settings, request, counting)
    assert erased(settings, KEY)["keys"][0]["rows"] == 1
    target = cast("Context", SimpleNamespace(identity=SimpleNamespace(cluster_id="c"), settings=settings))
    with connect(settings.postgres, "a test", autocommit=True) as connection:
        assert make(connection, plan, target).state == "running"
    assert query(outbox.dsn, "SELECT session_key FROM outbox.replay_key") == [("k0001",)]
    assert not appears(whole_dump(outbox.dsn), KEY.encode())
