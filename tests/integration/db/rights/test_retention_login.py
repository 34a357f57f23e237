"""What somebody with retention's login cannot do: the functions check for themselves, whatever they are asked."""

from collections.abc import Iterator
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import errors, sql
from psycopg.types.json import Jsonb

from publisher.retention.plan import DropVerdict
from publisher.retention.survey import survey
from service.settings import RetentionSettings
from tests.support.outbox.batches import TOPIC_ID, Outbox, simple
from tests.support.outbox.old_outputs import add_batches, deliver_all, partitions
from tests.support.queries import query

NEWEST = 30_005
FIRST = "session_output_p00000000"


@pytest.fixture
def old(database: str) -> Outbox:
    """Three full partitions of delivered batches and one in use."""
    outbox = Outbox(database, "out")
    outbox.batch(simple(1, keys=3))
    add_batches(database, NEWEST, every=500)
    deliver_all(database, NEWEST)
    return outbox


@pytest.fixture
def hostile(old: Outbox) -> Iterator[psycopg.Connection[Any]]:
    """A connection with the rights of retention and no more."""
    with psycopg.connect(old.dsn, autocommit=True, options="-c role=outbox_retention") as connection:
        yield connection


PARKED = (
    "INSERT INTO outbox.parked (session_key, batch_id, epoch, lane, lease_token, reason, detail)"
    " VALUES ('k0001', 1, 1, 0, 1, 'too_large', 'x')"
)
REPLAY = (
    "INSERT INTO outbox.replay (from_batch, to_batch, target_cluster_id, target_servers, rows_total, events_total, state)"
    " VALUES (5, 7, 'c', 's', 1, 1, 'paused')"
)
UPGRADED = (
    "WITH b AS (UPDATE outbox.batch SET start_offsets = %s, end_offsets = %s, sessions = 3 WHERE batch_id = 1)"
    " INSERT INTO outbox.generation (generation, start_offsets, open_state, topics, reason, policy, assembly, run_id, from_generation)"
    " VALUES (2, '{}', %s, '{}', 'upgrade', 'skip', '{}', gen_random_uuid(), 1)"
)
OPEN_AT_UPGRADE = {"safe": 40, "sessions": 0, "events": 0, "bytes": 0, "upgraded": True}
NEEDS: dict[str, tuple[LiteralString, tuple[object, ...]]] = {
    "a lane has not delivered": ("UPDATE outbox.lane SET cursor_batch = 1, cursor_key = 'k0001' WHERE lane = 1", ()),
    "a lane was never run": ("DELETE FROM outbox.lane WHERE lane = 1", ()),
    "a later epoch begins in it": ("INSERT INTO outbox.lane_epoch VALUES (2, 9000, 1)", ()),
    "a resume did not end": ("UPDATE outbox.lane SET stopped_reason = 'x', stopped_why = 'resuming' WHERE lane = 0", ()),
    "a row is parked": (PARKED, ()),
    "a replay reads it": (REPLAY, ()),
    "the job looks at it after the upgrade": (
        UPGRADED,
        tuple(Jsonb({TOPIC_ID: {"0": value}}) for value in (0, 50, OPEN_AT_UPGRADE)),
    ),
}  # fmt: skip


@pytest.mark.guarantee(107)
@pytest.mark.parametrize("need", NEEDS)
def test_a_partition_that_somebody_needs_is_not_dropped_and_the_plan_says_the_same(
    old: Outbox, hostile: psycopg.Connection[Any], need: str
) -> None:
    statement, values = NEEDS[need]
    query(old.dsn, statement, *values)
    found = survey(hostile, RetentionSettings(keep_s=60))
    for decision in found.decisions:
        if decision.verdict is DropVerdict.DROP:
            hostile.execute("SELECT outbox.drop_partition(%s)", (decision.partition.name,))
        else:
            with pytest.raises(errors.ObjectNotInPrerequisiteState, match="stays: "):
                hostile.execute("SELECT outbox.drop_partition(%s)", (decision.partition.name,))
    assert partitions(old.dsn)[0] == "0"
    assert partitions(old.dsn)[-1] == str(NEWEST // 10_000)


def test_what_nobody_needs_may_go_and_what_is_no_partition_may_not(
    old: Outbox, hostile: psycopg.Connection[Any]
) -> None:
    for other in (
        "batch",
        "session_output",
        "pg_class",
        "session_output_p00000003",
        "session_output_p99999999",
    ):
        with pytest.raises((errors.UndefinedTable, errors.ObjectNotInPrerequisiteState)):
            hostile.execute("SELECT outbox.drop_partition(%s)", (other,))
    query(old.dsn, f"ALTER TABLE outbox.session_output DETACH PARTITION outbox.{FIRST}")
    with pytest.raises(errors.UndefinedTable):
        hostile.execute("SELECT outbox.drop_partition(%s)", (FIRST,))
    hostile.execute("SELECT outbox.drop_partition('session_output_p00000001')")
    assert partitions(old.dsn) == ["0-", "2", "3"]


def test_nothing_is_dropped_while_a_replay_begins_to_need_old_rows(
    old: Outbox, hostile: psycopg.Connection[Any]
) -> None:
    with psycopg.connect(old.dsn) as replay:
        replay.execute("SELECT pg_advisory_lock_shared(hashtextextended('outbox.retention', 0))")
        with pytest.raises(errors.ObjectInUse):
            hostile.execute("SELECT outbox.drop_partition(%s)", (FIRST,))


@pytest.mark.guarantee(107)
@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
@pytest.mark.parametrize("need", ["a lane has not delivered", "a replay reads it"])
def test_a_transaction_that_looked_before_somebody_needed_the_rows_drops_nothing(
    old: Outbox, need: str, isolation: str
) -> None:
    options = (
        f"-c role=outbox_retention -c default_transaction_isolation={isolation.replace(' ', chr(92) + ' ')}"
    )
    with psycopg.connect(old.dsn, options=options) as hostile:
        hostile.execute("SELECT FROM outbox.lane_position")
        query(old.dsn, *NEEDS[need][:1])
        with pytest.raises(errors.InvalidTransactionState):
            hostile.execute("SELECT outbox.drop_partition(%s)", (FIRST,))
    assert partitions(old.dsn)[0] == "0"


def test_nobody_waits_for_a_drop_longer_than_a_fifth_of_a_second_whatever_its_login_sets(
    old: Outbox, hostile: psycopg.Connection[Any]
) -> None:
    hostile.execute("SET lock_timeout = 0")
    with psycopg.connect(old.dsn) as reader:
        reader.execute("SELECT count(*) FROM outbox.session_output")
        with pytest.raises(errors.LockNotAvailable):
            hostile.execute("SELECT outbox.drop_partition(%s)", (FIRST,))
    assert partitions(old.dsn)[0] == "0"


@pytest.mark.guarantee(107)
def test_rows_that_are_needed_stay_whatever_age_is_asked_for(
    old: Outbox, hostile: psycopg.Connection[Any]
) -> None:
    query(old.dsn, "UPDATE outbox.lane SET cursor_batch = 9000 WHERE lane = 1")
    query(old.dsn, PARKED)
    query(
        old.dsn,
        "INSERT INTO outbox.delivery (epoch, lane, seq, to_batch, sessions, events, committed_at)"
        " SELECT 1, 0, n, n, 1, 1, now() - make_interval(mins => 90 - 10 * n) FROM generate_series(1, 9) n",
    )
    query(
        old.dsn,
        "INSERT INTO outbox.operation (os_user, host, command, arguments, result)"
        " VALUES ('ann', 'host', 'publisher lanes set', '{}', '{}')",
    )
    query(
        old.dsn,
        "INSERT INTO outbox.publisher_process (process_id, host, pid, backend_pid, alive_until)"
        " VALUES (gen_random_uuid(), 'host', 1, 1, now() + interval '1 minute')",
    )
    before = query(old.dsn, "SELECT count(*) FROM outbox.batch")
    hostile.execute("SELECT outbox.prune_batches(-1e6, 0, 100000)")
    hostile.execute("SELECT outbox.prune_parked(-1e6, 100000)")
    hostile.execute("SELECT outbox.prune_epochs(-1e6)")
    hostile.execute("SELECT outbox.prune_operations(-1e6, 100000)")
    hostile.execute("SELECT outbox.prune_deliveries(1, 0, -1e6, 100000)")
    hostile.execute("SELECT outbox.prune_processes(-1e6, 100000)")
    assert query(old.dsn, "SELECT count(*) FROM outbox.batch") == before
    assert query(old.dsn, "SELECT count(*) FROM outbox.parked") == [(1,)]
    assert query(old.dsn, "SELECT count(*) FROM outbox.lane_epoch") == [(1,)]
    assert query(old.dsn, "SELECT count(*) FROM outbox.operation") == [(1,)]
    assert query(old.dsn, "SELECT count(*) FROM outbox.publisher_process") == [(1,)], "it is alive"
    assert query(old.dsn, "SELECT min(seq) FROM outbox.delivery") == [(4,)], "the last hour of them stays"


def test_open_letters_are_removed_by_nobody_without_a_grant(hostile: psycopg.Connection[Any]) -> None:
    for function in (
        "remove_open_letters(NULL, 0, 1000000, 100)",
        "remove_letters(true, NULL, 0, 1000000, 100)",
    ):
        with pytest.raises(errors.InsufficientPrivilege):
            hostile.execute(f"SELECT outbox.{function}".encode())


def test_retention_sees_no_session_key_and_no_payload(hostile: psycopg.Connection[Any]) -> None:
    for relation in ("session_output", "dead_letter", "event", "replay_key", "operation"):
        with pytest.raises(errors.InsufficientPrivilege):
            hostile.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier("outbox", relation)))
    for statement in (
        "SELECT session_key FROM outbox.parked",
        # They remember the keys of sessions that were too large.
        "SELECT open_state FROM outbox.batch",
        "SELECT open_state FROM outbox.generation",
        "SELECT cursor_key FROM outbox.lane_position",
        "SELECT * FROM outbox.lane_position",
    ):
        with pytest.raises(errors.InsufficientPrivilege):
            hostile.execute(statement.encode())
