"""An erasure that is killed anywhere is finished by the next one, and one beside running services disturbs nobody."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from db.connection import connect
from devstack.kafka import KafkaServer
from devstack.topics import create_topics
from publisher.audit import audit as audits
from publisher.audit.audit import AuditRequest
from publisher.audit.readback import readback
from publisher.audit.scope import Limits
from service.lifecycle.fault_points import Action, Fault, FaultPlan
from service.settings import Settings
from tests.support.outbox.audits import counted, failed, run_audit
from tests.support.outbox.batches import Outbox, Session, simple
from tests.support.outbox.deliveries import assert_exactly_once, deliver
from tests.support.outbox.replays import (
    ReplayProcess,
    die_before_the_commit,
    let_leases_run_out,
    make_replay,
    seen_of,
)
from tests.support.processes.erasing import appears, erase, erase_process, erased, whole_dump
from tests.support.processes.publishers import RelayThread, settings_for
from tests.support.queries import query
from tests.support.reading import read_to_end
from tests.support.waiting import wait_until
from tests.support.watching import Watcher


@pytest.mark.guarantee(181)
@pytest.mark.parametrize(
    ("point", "rows_left"),
    [
        ("erasure.after_tombstones", 4),
        ("erasure.before_commit", 4),
        ("erasure.after_commit", 2),
    ],
)
def test_a_killed_erasure_is_finished_by_the_next_one(
    outbox: Outbox,
    settings: Settings,
    kafka: KafkaServer,
    topic_prefix: str,
    tmp_path: Path,
    point: str,
    rows_left: int,
) -> None:
    compacted = f"{topic_prefix}compacted"
    create_topics(kafka.bootstrap_servers, {compacted: (2, {"cleanup.policy": "compact"})})
    for batch in (1, 2):
        session = Session(
            [b"forget-me-4711", b"forget-me-4711"], batch * 1_000 + 7, topics=[compacted, outbox.topic]
        )
        outbox.batch(
            {**simple(batch, 2), "first": [session], "second": [replace(session, end=batch * 1_000 + 8)]}
        )
    deliver(settings)
    plan = FaultPlan(tmp_path / "faults.json")
    plan.write(Fault(point, Action.KILL))
    arguments = ("first", "second", "--tombstones", compacted)

    killed = erase_process(settings, *arguments, fault_file=plan.file)

    assert killed.returncode == -9, killed.stderr
    left = "SELECT count(*) FROM outbox.session_output WHERE session_key IN ('first', 'second')"
    assert query(outbox.dsn, left) == [(rows_left,)]
    assert failed(run_audit(settings, tmp_path, kafka=True)) == {}
    finished = erase_process(settings, *arguments)
    assert finished.returncode == 0, finished.stderr
    assert not appears(whole_dump(outbox.dsn), b"forget-me-4711")
    report = run_audit(settings, tmp_path, kafka=True)
    assert failed(report) == {}
    assert counted(report, "records_of_erased_outputs") == 8
    newest = {message.key(): message.value() for message in read_to_end(kafka.bootstrap_servers, compacted)}
    assert newest == {b"first": None, b"second": None}


@pytest.mark.guarantee(182)
def test_beside_the_job_and_the_publisher_nothing_is_lost_or_comes_twice(
    outbox: Outbox, settings: Settings, watcher: Watcher, tmp_path: Path
) -> None:
    small = settings_for(outbox.dsn, settings.kafka.bootstrap_servers, transaction_sessions=3)
    done = threading.Event()

    def write() -> None:
        for batch in range(1, 41):
            outbox.batch(simple(batch, 6))
        done.set()

    writing = threading.Thread(target=write)
    with RelayThread(small):
        writing.start()
        while not done.is_set():
            assert erase(small, "k0001", "k0004").exit_code in (0, 1)
        writing.join()
    deliver(small)
    assert_exactly_once(outbox, watcher)
    erased(small, "k0001", "k0004")
    assert not appears(whole_dump(outbox.dsn), b"k0001")
    report = run_audit(small, tmp_path, kafka=True)
    assert failed(report) == {}
    assert counted(report, "records_of_erased_outputs") == 240
    assert query(outbox.dsn, "SELECT count(*) FROM outbox.audit_reconciliation") == [(0,)]


@pytest.mark.guarantee(182)
@pytest.mark.parametrize(
    "filters", [["--all"], [f"--key=k000{number}" for number in range(4)]], ids=["all", "keys"]
)
def test_a_replay_that_lost_its_lease_in_mid_transaction_sends_nothing_that_was_erased_meanwhile(
    outbox: Outbox, settings: Settings, watcher: Watcher, tmp_path: Path, filters: list[str]
) -> None:
    outbox.batch(simple(1, 4))
    deliver(settings)
    plan = FaultPlan(tmp_path / "faults.json")
    plan.write(Fault("transaction.before_commit", Action.HOLD))
    with ReplayProcess(
        settings, tmp_path / "log", "start", *filters, "--yes", fault_file=plan.file
    ) as process:
        wait_until(lambda: not plan.pending(), "the rows in an open transaction")
        for _ in range(2):
            (left,) = erased(settings, "k0001", code=1)["keys"][0]["left"]
            assert left.startswith("replay 1 needs the row")
        query(
            outbox.dsn,
            "SELECT pg_terminate_backend(lease_backend_pid, 5000) FROM outbox.replay",
        )
        let_leases_run_out(outbox.dsn)
        assert erased(settings, "k0001")["keys"][0]["rows"] == 1
        plan.write()
        assert process.wait() == 5, process.log()
    ((uuid, state, reason),) = query(outbox.dsn, "SELECT replay_uuid::text, state, reason FROM outbox.replay")
    assert state == "done"
    assert reason.startswith("rows_gone: 4 rows were counted when the replay was made, 3 were sent")
    watcher.wait_until_all_read()
    assert {key for key, *_ in seen_of(watcher, uuid)} == {b"k0000", b"k0002", b"k0003"}


@pytest.mark.guarantee(182)
def test_a_replay_that_was_frozen_between_two_transactions_continues_without_what_was_erased(
    outbox: Outbox, settings: Settings, watcher: Watcher, tmp_path: Path
) -> None:
    """It has listed more rows than a transaction takes."""
    outbox.batch(simple(1, 8))
    deliver(settings)
    small = settings_for(outbox.dsn, settings.kafka.bootstrap_servers, transaction_sessions=2)
    plan = FaultPlan(tmp_path / "faults.json")
    plan.write(Fault("delivery.after_record", Action.HOLD))
    with ReplayProcess(small, tmp_path / "log", "start", "--all", "--yes", fault_file=plan.file) as process:
        wait_until(lambda: not plan.pending(), "the first transaction")
        let_leases_run_out(outbox.dsn)
        assert erased(settings, "k0003")["keys"][0]["rows"] == 1
        plan.write()
        assert process.wait() == 5, process.log()
    ((uuid, state, reason),) = query(outbox.dsn, "SELECT replay_uuid::text, state, reason FROM outbox.replay")
    assert state == "done"
    assert reason.startswith("rows_gone: 8 rows were counted when the replay was made, 7 were sent")
    watcher.wait_until_all_read()
    assert len({key for key, *_ in seen_of(watcher, uuid)}) == 7


@pytest.mark.guarantee(182)
@pytest.mark.parametrize("successor", ["none", "killed", "left"])
def test_a_replay_that_died_between_its_check_and_its_commit_sends_nothing_that_is_erased_before_its_lease_has_passed(
    outbox: Outbox, settings: Settings, successor: str
) -> None:
    outbox.batch(simple(1, 4))
    deliver(settings)
    # Its next step is Kafka's commit.
    die_before_the_commit(settings, make_replay(settings), lease_s=3_600)
    if successor != "none":
        # It has fenced nobody yet.
        die_before_the_commit(settings, 1, lease_s=1, leaves=successor == "left")

    (left,) = erased(settings, "k0001", code=1)["keys"][0]["left"]

    assert left.startswith("replay 1 needs the row")
    let_leases_run_out(outbox.dsn)
    assert erased(settings, "k0001")["keys"][0]["rows"] == 1


@pytest.mark.guarantee(182)
def test_an_audit_holds_an_erasure_off_and_a_killed_one_begins_anew_after_it(
    outbox: Outbox, settings: Settings, tmp_path: Path
) -> None:
    for batch in (1, 2):
        outbox.batch(simple(batch, 4))
    deliver(settings)
    state = tmp_path / "state"
    request = AuditRequest(Limits(), True, state, tmp_path / "keys")

    class KilledError(Exception):
        pass

    def killed(*_: object) -> None:
        refused = erase(settings, "k0001", lock_timeout_ms=300)
        assert "held a lock" in str(refused.exception)
        raise KilledError

    patch = pytest.MonkeyPatch()
    with patch.context() as patched, connect(settings.postgres, "audit", autocommit=True) as connection:
        patched.setattr(readback, "_compare", killed)
        with pytest.raises(KilledError):
            audits.audit(connection, settings, request, lambda name, steps: lambda done: None)
    assert (state / "state.json").exists()
    erased(settings, "k0001")
    report = run_audit(settings, tmp_path, kafka=True, state=state)
    assert failed(report) == {}
    assert counted(report, "records_of_erased_outputs") == 6
