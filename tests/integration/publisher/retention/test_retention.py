"""Old outputs go when they are delivered and nobody needs them; nobody waits for it, and a kill at any step is mended by the next run."""

import json
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.types.json import Jsonb

from publisher.retention.retention_lock import hold_off_retention
from service.errors import UnavailableError
from service.lifecycle.fault_points import Action, Fault
from service.settings import Settings
from tests.support.outbox.batches import TOPIC_ID, Outbox, simple
from tests.support.outbox.deliveries import assert_exactly_once
from tests.support.outbox.old_outputs import (
    Command,
    add_batches,
    deliver_all,
    partitions,
    retention_settings,
)
from tests.support.processes.publishers import publisher_service
from tests.support.queries import query
from tests.support.waiting import wait_until
from tests.support.watching import Watcher

NEWEST = 30_005


@pytest.fixture
def old(database: str) -> Outbox:
    """Three full partitions of old, delivered batches and one in use."""
    outbox = Outbox(database, "out")
    outbox.batch(simple(1, keys=3))
    add_batches(database, NEWEST, every=500)
    deliver_all(database, NEWEST)
    return outbox


@pytest.fixture
def command(old: Outbox, tmp_path: Path) -> Command:
    return Command(retention_settings(old.dsn), tmp_path)


@pytest.mark.guarantee(98)
def test_delivered_partitions_go_while_the_job_writes_and_the_publisher_delivers(
    outbox: Outbox, settings: Settings, watcher: Watcher, tmp_path: Path
) -> None:
    command = Command(retention_settings(outbox.dsn, keep_ledger_s=60), tmp_path)
    outbox.batch(simple(1, keys=20))
    add_batches(outbox.dsn, 20_000)
    with publisher_service(settings, tmp_path / "publisher.log") as publisher:
        done = threading.Event()
        retained: list[tuple[int, str]] = []

        def retain() -> None:
            through = "SELECT count(*) FROM outbox.lane WHERE cursor_batch >= 20000"
            wait_until(lambda: query(outbox.dsn, through) == [(2,)], "the old batches' delivery")
            retained.append(command.run("run", "--yes"))

        def retain_and_tell() -> None:
            try:
                retain()
            finally:
                done.set()

        thread = threading.Thread(target=retain_and_tell)
        thread.start()
        while not done.is_set():
            batch = len(outbox.written)
            outbox.batch(simple(batch, keys=5))
            done.wait(0.02)
        thread.join()
        # Without the rows that the cursors name, or with a gap after them, its start would refuse.
        publisher.kill()
        publisher.start()
        outbox.batch(simple(999_999, keys=5))
        assert_exactly_once(outbox, watcher)
    ((code, output),) = retained
    assert code == 0, output
    assert "0" not in partitions(outbox.dsn)
    ((ledger,),) = query(outbox.dsn, "SELECT count(*) FROM outbox.batch WHERE batch_id < 10000")
    assert ledger < 5, output


@pytest.mark.guarantee(95)
def test_each_who_needs_a_partition_is_named_and_the_others_go(old: Outbox, command: Command) -> None:
    with psycopg.connect(old.dsn, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO outbox.parked (session_key, batch_id, epoch, lane, lease_token, reason, detail)"
            " VALUES ('k0001', 1, 1, 0, 1, 'too_large', 'MSG_SIZE_TOO_LARGE')"
        )
        connection.execute(
            "INSERT INTO outbox.replay (from_batch, to_batch, cursor_batch, target_cluster_id, target_servers, rows_total, events_total,"
            " state) VALUES (5, 25000, 20500, 'cluster', 'host:9092', 1, 1, 'paused')"
        )
    code, output = command.run("run", "--yes", "--json")
    report = json.loads(output)
    assert (code, report["dropped"]) == (1, ["session_output_p00000001"])
    reasons = {refused["partition"][-1]: " ".join(refused["reasons"]) for refused in report["refused"]}
    assert "1 parked rows in batches 1 to 1" in reasons["0"]
    assert "replay 1 (paused) still reads batches 20500 to 25000" in reasons["2"]
    assert partitions(old.dsn)[:3] == ["0", "2", "3"]
    query(old.dsn, "UPDATE outbox.parked SET state = 'discarded'")
    query(old.dsn, "UPDATE outbox.replay SET state = 'cancelled'")
    assert command.run("run", "--yes")[0] == 0
    assert partitions(old.dsn)[:1] == ["3"]


@pytest.mark.guarantee(95)
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("UPDATE outbox.lane SET cursor_batch = 1, cursor_key = 'k0001' WHERE lane = 1", "epoch 1, {} 1) has delivered up to batch 0"),
        ("DELETE FROM outbox.lane WHERE lane = 1", "{} 1) has delivered up to batch 0, held by nobody. Start `publisher run`"),
        ("INSERT INTO outbox.lane_epoch VALUES (2, 9000, 1)", "lane 0 of epoch 2, {} 0) has delivered up to batch 8999"),
    ],
)  # fmt: skip
def test_what_one_lane_has_not_delivered_stays_also_a_lane_that_nobody_has_run_yet(
    old: Outbox, command: Command, change: str, reason: str
) -> None:
    query(old.dsn, change)
    code, output = command.run("plan", "--json")
    first = json.loads(output)["partitions"][0]
    assert (code, first["verdict"]) == (1, "refused")
    assert reason.format("the slowest (lane") in first["reasons"][0]
    assert command.run("run", "--yes")[0] == 1
    assert "0" in partitions(old.dsn)


@pytest.mark.guarantee(95)
def test_outputs_that_the_first_batch_after_an_upgrade_looks_at_stay_until_it_is_there(
    old: Outbox, command: Command
) -> None:
    def ends(offset: int) -> Jsonb:
        return Jsonb({TOPIC_ID: {"0": offset}})

    for batch, start, end in ((1, 0, 50), (10_500, 50, 90)):
        query(
            old.dsn,
            "UPDATE outbox.batch SET start_offsets = %s, end_offsets = %s, sessions = 3 WHERE batch_id = %s",
            ends(start),
            ends(end),
            batch,
        )
    query(
        old.dsn,
        "INSERT INTO outbox.generation (generation, start_offsets, open_state, topics, reason, policy, assembly,"
        " run_id, from_generation) VALUES (2, %s, %s, '{}', 'upgrade', 'skip', '{}', gen_random_uuid(), 1)",
        ends(90),
        Jsonb({TOPIC_ID: {"0": {"safe": 60, "sessions": 0, "events": 0, "bytes": 0, "upgraded": True}}}),
    )
    code, output = command.run("run", "--yes", "--json")
    report = json.loads(output)
    assert (code, report["dropped"]) == (1, ["session_output_p00000000", "session_output_p00000002"])
    reason = report["refused"][0]["reasons"][0]
    assert f"{TOPIC_ID}/0 since offset 60 when the schema was upgraded" in reason
    assert "in 1 batches from 10500 to 10500. Start `spark-job run`" in reason

    query(
        old.dsn,
        "INSERT INTO outbox.batch (batch_id, kind, generation, spark_batch, run_id, start_offsets, end_offsets, open_state,"
        " transform_fingerprint) VALUES (%s, 'stream', 2, 0, gen_random_uuid(), '{}', '{}', '{}', 'test')",
        NEWEST + 1,
    )
    deliver_all(old.dsn, NEWEST + 1)
    code, output = command.run("run", "--yes", "--json")
    assert (code, json.loads(output)["dropped"]) == (0, ["session_output_p00000001"])


def test_a_session_that_never_closes_keeps_nothing(old: Outbox, command: Command) -> None:
    """Its events are in Kafka, from where a restart reads them again; no output that was delivered is needed for that."""
    open_since = {TOPIC_ID: {"0": {"safe": 3, "sessions": 1, "events": 1, "bytes": 10, "digest": "0" * 24}}}
    query(old.dsn, "UPDATE outbox.batch SET open_state = %s", Jsonb(open_since))
    code, output = command.run("run", "--yes", "--json")
    assert (code, json.loads(output)["refused"]) == (0, [])
    assert partitions(old.dsn)[0] == "3"


@pytest.mark.guarantee(97)
def test_nothing_is_dropped_unless_a_limit_is_set_and_somebody_agrees(old: Outbox, tmp_path: Path) -> None:
    off = Command(retention_settings(old.dsn, keep_s=None), tmp_path)
    code, output = off.run("run", "--yes")
    assert (code, "retention is off" in output) == (2, True)
    code, output = off.run("plan")
    assert (code, "nothing is ever dropped" in output) == (0, True)
    on = Command(retention_settings(old.dsn), tmp_path)
    code, output = on.run("run")
    assert (code, "drops 3 partitions" in output, "say --yes" in output) == (2, True, True)
    code, output = on.run("run", "--dry-run")
    assert (code, "drop" in output) == (0, True)
    assert partitions(old.dsn)[:4] == ["0", "1", "2", "3"]


def test_by_size_the_oldest_go_until_the_rest_fits(old: Outbox, tmp_path: Path) -> None:
    _, output = Command(retention_settings(old.dsn), tmp_path).run("plan", "--json")
    plan = json.loads(output)
    fits = sum(partition["bytes"] for partition in plan["partitions"][2:]) + plan["letters"]["disk_bytes"]
    command = Command(retention_settings(old.dsn, keep_s=None, keep_bytes=fits), tmp_path)
    assert command.run("run", "--yes")[0] == 0
    assert partitions(old.dsn)[:2] == ["2", "3"]


@pytest.mark.guarantee(98)
@pytest.mark.parametrize(
    ("point", "left"),
    [
        ("retention.before_drop", ["0", "1", "2", "3"]),
        pytest.param("retention.after_drop", ["1", "2", "3"], marks=pytest.mark.faults),
        ("retention.during_pruning", ["3"]),
        pytest.param("retention.after_ledger", ["3"], marks=pytest.mark.faults),
    ],
)
def test_a_kill_at_any_step_is_mended_by_the_next_run(
    old: Outbox, tmp_path: Path, point: str, left: list[str]
) -> None:
    command = Command(retention_settings(old.dsn, keep_ledger_s=60), tmp_path)
    code, output = command.run("run", "--yes", fault=Fault(point, Action.KILL))
    assert code == -signal.SIGKILL, output
    assert partitions(old.dsn)[: len(left)] == left
    code, output = command.run("run", "--yes")
    assert code == 0, output
    assert partitions(old.dsn)[0] == "3"
    assert query(old.dsn, "SELECT min(batch_id), count(*) FROM outbox.batch WHERE batch_id < 30000") == [
        (None, 0)
    ]


@pytest.fixture
def reader(old: Outbox) -> Iterator["psycopg.Connection[tuple[object, ...]]"]:
    """A transaction that has read the outputs and continues for as long as the test wants."""
    with psycopg.connect(old.dsn, application_name="a long report") as connection:
        connection.execute("SELECT count(*) FROM outbox.session_output")
        yield connection


@pytest.mark.guarantee(98)
def test_nobody_waits_long_while_retention_waits_for_a_long_reader(
    old: Outbox, command: Command, reader: "psycopg.Connection[tuple[object, ...]]"
) -> None:
    with command.start("run", "--yes") as process:
        attempts = "SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND NOT granted"
        impatient = psycopg.connect(old.dsn, autocommit=True, options="-c lock_timeout=1s")
        with impatient:
            for batch in (2, 3):
                wait_until(lambda: query(old.dsn, attempts) == [(1,)], "an attempt to drop", poll_s=0.01)
                # What the job and the publisher do: rows in, rows out, partitions ahead.
                old.batch(simple(batch, keys=2))
                impatient.execute("SELECT count(*) FROM outbox.session_output WHERE batch_id >= 30000")
            impatient.execute("SELECT outbox.ensure_partitions(90001, 90001)")
        assert process.poll() is None
        assert partitions(old.dsn)[0] == "0"
        reader.rollback()
        output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    assert partitions(old.dsn)[0] == "3"


def test_a_reader_that_continues_too_long_is_named_and_nothing_is_lost(
    old: Outbox, tmp_path: Path, reader: "psycopg.Connection[tuple[object, ...]]"
) -> None:
    hasty = Command(retention_settings(old.dsn, lock_timeout_s=1), tmp_path)
    for _ in range(2):
        code, output = hasty.run("run", "--yes")
        assert code == 6, output
        assert "a long report" in output
        assert f"SELECT pg_terminate_backend({reader.info.backend_pid})" in output
        assert partitions(old.dsn)[0] == "0"
        # For the alert.
        assert query(old.dsn, "SELECT strpos(failed, 'a long report') > 0 FROM outbox.retention") == [(True,)]
    reader.rollback()
    assert hasty.run("run", "--yes")[0] == 0
    assert query(old.dsn, "SELECT failed FROM outbox.retention") == [(None,)]


def test_what_somebody_else_detached_is_left_alone(old: Outbox, command: Command) -> None:
    query(old.dsn, "ALTER TABLE outbox.session_output DETACH PARTITION outbox.session_output_p00000001")
    query(old.dsn, "CREATE TABLE outbox.session_output_p00000099 (batch_id bigint)")
    code, output = command.run("run", "--yes")
    assert code == 0, output
    assert "detached_by_somebody_else" in output
    assert partitions(old.dsn) == ["1-", "3", "99-"]


@pytest.mark.guarantee(99)
def test_one_retention_runs_at_a_time(old: Outbox, command: Command) -> None:
    with psycopg.connect(old.dsn, application_name="another retention") as other:
        other.execute("SELECT pg_advisory_lock(hashtextextended('outbox.retention', 0))")
        code, output = command.run("run", "--yes")
        assert code == 4, output
        assert f"another retention runs, pid {other.info.backend_pid}" in output
    assert partitions(old.dsn)[0] == "0"


@pytest.mark.guarantee(107)
@pytest.mark.parametrize("role", ["outbox_publisher", "outbox_writer", "outbox_auditor"])
def test_a_service_login_is_told_which_right_it_lacks_and_drops_nothing(
    old: Outbox, tmp_path: Path, role: str
) -> None:
    login = psycopg.conninfo.make_conninfo(old.dsn, options=f"-c role={role}")
    command = Command(retention_settings(login), tmp_path)
    code, output = command.run("run", "--yes")
    assert code == 1, output
    assert f"'{role}' may not drop partitions" in output
    assert "GRANT" in output
    assert "OUTBOX_RETENTION__DSN" in output
    assert partitions(old.dsn)[0] == "0"
    own = retention_settings(login, dsn=old.dsn)
    assert Command(own, tmp_path).run("run", "--yes")[0] == 0, "the login of [retention] dsn is used"


@pytest.mark.guarantee(99)
def test_whoever_begins_to_need_old_outputs_keeps_retention_away_meanwhile(
    old: Outbox, command: Command
) -> None:
    with psycopg.connect(old.dsn, autocommit=True, options="-c role=outbox_publisher") as replay:
        hold_off_retention(replay)
        assert command.run("run", "--yes")[0] == 4
    with (
        psycopg.connect(old.dsn, autocommit=True, options="-c lock_timeout=100") as other,
        psycopg.connect(old.dsn, autocommit=True) as retention,
    ):
        retention.execute("SELECT pg_advisory_lock(hashtextextended('outbox.retention', 0))")
        with pytest.raises(UnavailableError, match="retention has held the outputs"):
            hold_off_retention(other)
    assert command.run("run", "--yes")[0] == 0


def test_partitions_are_made_ahead_of_the_newest_batch(old: Outbox, tmp_path: Path) -> None:
    Command(retention_settings(old.dsn, ahead_batches=25_000), tmp_path).run("run", "--yes")
    assert partitions(old.dsn) == ["3", "4", "5"]


def test_deliveries_stay_a_chain_and_ended_processes_and_replays_go(old: Outbox, tmp_path: Path) -> None:
    with psycopg.connect(old.dsn, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO outbox.delivery (epoch, lane, seq, after_batch, to_batch, sessions, events, committed_at)"
            " SELECT 1, l, n, (n - 1) * 4000, n * 4000, 1, 1, now() - interval '9 days' FROM generate_series(0, 1) l,"
            " generate_series(1, 8) n WHERE l = 0 OR n < 4"
        )
        for old_or_new, replay in (("9 days", 1), ("1 second", 2)):
            connection.execute(
                "INSERT INTO outbox.publisher_process (process_id, host, pid, alive_until, backend_pid)"
                " VALUES (gen_random_uuid(), 'host', 1, now() - %s::interval, 1)",
                (old_or_new,),
            )
            connection.execute(
                "INSERT INTO outbox.replay (replay_id, from_batch, to_batch, target_cluster_id, target_servers, rows_total, events_total,"
                " state, state_changed_at) VALUES (%s, 1, 2, 'c', 's', 1, 1, 'done', now() - %s::interval)",
                (replay, old_or_new),
            )
            connection.execute("INSERT INTO outbox.replay_key VALUES (%s, 'a'), (%s, 'b')", (replay, replay))
    code, output = Command(retention_settings(old.dsn), tmp_path).run("run", "--yes", "--json")
    assert code == 0, output
    assert json.loads(output)["pruned"] == {
        "batches": 0,
        "deliveries": 9,
        "parked": 0,
        "letters": 0,
        "epochs": 0,
        "processes": 0,
        "replays": 0,
        "operations": 0,
    }
    code, output = Command(retention_settings(old.dsn, keep_ledger_s=3_600), tmp_path).run(
        "run", "--yes", "--json"
    )
    assert json.loads(output)["pruned"] == {
        "batches": 60,
        "deliveries": 0,
        "parked": 0,
        "letters": 0,
        "epochs": 0,
        "processes": 1,
        "replays": 1,
        "operations": 0,
    }
    assert query(old.dsn, "SELECT lane, pruned_seq FROM outbox.lane ORDER BY lane") == [(0, 7), (1, 2)]
    assert query(old.dsn, "SELECT count(*) FROM outbox.check_delivery_chain") == [(0,)]
    query(old.dsn, "UPDATE outbox.lane SET pruned_seq = 6 WHERE lane = 0")
    assert query(old.dsn, "SELECT lane, detail FROM outbox.check_delivery_chain") == [
        (0, "after delivery 6 comes 8")
    ], "one that is missing is still found"
    assert query(
        old.dsn, "SELECT lane, array_agg(seq ORDER BY seq) FROM outbox.delivery GROUP BY lane ORDER BY lane"
    ) == [
        (0, [8]),
        (1, [3]),
    ], "the newest of a lane stays whatever it is"
    assert query(old.dsn, "SELECT replay_id, count(*) FROM outbox.replay_key GROUP BY 1") == [(2, 2)]
    assert query(old.dsn, "SELECT replay_id FROM outbox.replay") == [(2,)]
