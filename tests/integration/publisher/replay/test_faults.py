"""A replay sends each event once, whatever dies, hangs or runs beside it."""

import os
from pathlib import Path
from typing import Any

import pytest

from devstack.kafka import KafkaServer
from devstack.topics import create_topics
from service.lifecycle.fault_points import Action, Fault, FaultPlan
from service.settings import Settings
from tests.support.outbox.batches import Outbox, Session, simple
from tests.support.outbox.deliveries import deliver
from tests.support.outbox.replays import ReplayProcess, assert_replayed, replay, replayed
from tests.support.queries import query
from tests.support.waiting import wait_until
from tests.support.watching import Watcher

# Where a wrong order of the commits would lose or repeat; all steps are cells of the fault matrix.
TELLING = [
    "transaction.during_produce",
    "transaction.before_commit",
    "transaction.after_commit",
    "delivery.after_check",
]


@pytest.fixture
def small(settings: Settings) -> Settings:
    """Settings that make many transactions out of few rows."""
    publisher = settings.publisher.model_copy(update={"transaction_sessions": 4})
    return Settings.model_construct(postgres=settings.postgres, kafka=settings.kafka, publisher=publisher)


@pytest.fixture
def plan(tmp_path: Path) -> FaultPlan:
    """The faults to come."""
    return FaultPlan(tmp_path / "faults.json")


def uuid_of(outbox: Outbox) -> str:
    """The header of the only replay."""
    return str(query(outbox.dsn, "SELECT replay_uuid FROM outbox.replay")[0][0])


def killed_at_each(
    points: list[str], outbox: Outbox, settings: Settings, watcher: Watcher, plan: FaultPlan, log: Path
) -> None:
    """Let one life of the same replay after the other be killed, each at the next point, and one go through to its end."""
    for batch in range(1, 9):
        outbox.batch(simple(batch, keys=8))
    deliver(settings)
    arguments = ["start", "--all", "--yes"]
    for number, point in enumerate(points):
        # A crash between the two commits comes first where the next life is to fill its trace.
        before = [Fault("transaction.after_commit", Action.KILL)] if point == "delivery.after_check" else []
        plan.write(*before, Fault(point, Action.KILL))
        for _ in [*before, point]:
            with ReplayProcess(settings, log, *arguments, fault_file=plan.file) as process:
                assert process.wait() == -9, process.log()
            if query(outbox.dsn, "SELECT count(*) FROM outbox.replay")[0][0]:
                arguments = ["go-on", "1"]
        assert [fault.point for fault, _ in plan.fired()][-1] == point, number
    with ReplayProcess(settings, log, *arguments, fault_file=plan.file) as process:
        assert process.wait() == 0, process.log()
    assert_replayed(watcher, uuid_of(outbox), outbox.written)
    assert query(outbox.dsn, "SELECT state, rows_sent, events_sent, lease_holder FROM outbox.replay") == [
        ("done", 64, 192, None)
    ]


@pytest.mark.guarantee(75)
def test_topics_keep_their_new_names_over_a_kill(
    outbox: Outbox, small: Settings, kafka: KafkaServer, plan: FaultPlan, tmp_path: Path
) -> None:
    """Outputs for two topics, of which one gets another name; the other keeps its own."""
    extra, moved = f"{outbox.topic}-extra", f"{outbox.topic}-moved"
    create_topics(kafka.bootstrap_servers, {extra: (1, {}), moved: (2, {})})
    for batch in range(1, 6):
        outbox.batch(
            {f"k{n}": [Session([b"a", b"b"], batch * 100 + n, [outbox.topic, extra])] for n in range(1, 9)}
        )
    deliver(small)
    plan.write(Fault("transaction.after_commit", Action.KILL, hit=2))
    to = ["--to-topic", f"{outbox.topic}={moved}"]
    with ReplayProcess(
        small, tmp_path / "log", "start", "--all", *to, "--yes", fault_file=plan.file
    ) as first:
        assert first.wait() == -9, first.log()
    assert query(outbox.dsn, "SELECT target_topic FROM outbox.replay") == [(f"{outbox.topic}={moved}",)]
    done = replayed(small, "go-on", "1")
    assert done["events_sent"] == 80
    for topic, value in ((moved, b"a"), (extra, b"b")):
        with Watcher(kafka.bootstrap_servers, topic, tolerant=True) as watcher:
            wanted = [event for event in outbox.written if event[1] == value]
            assert_replayed(watcher, done["replay_uuid"], wanted)


@pytest.mark.guarantee(75)
def test_kill_9_around_the_commits_neither_loses_nor_repeats(
    outbox: Outbox, small: Settings, watcher: Watcher, plan: FaultPlan, tmp_path: Path
) -> None:
    killed_at_each(TELLING, outbox, small, watcher, plan, tmp_path / "log")


@pytest.mark.guarantee(75)
def test_a_runner_that_hangs_is_fenced_by_the_next_one(
    outbox: Outbox, small: Settings, watcher: Watcher, plan: FaultPlan, tmp_path: Path
) -> None:
    for batch in range(1, 5):
        outbox.batch(simple(batch, keys=8))
    deliver(small)
    plan.write(Fault("transaction.before_commit", Action.HOLD, hit=2))
    with ReplayProcess(small, tmp_path / "log", "start", "--all", "--yes", fault_file=plan.file) as first:
        wait_until(lambda: not plan.pending(), "the hang")
        refused = replay(small, "go-on", "1")
        assert getattr(refused.exception, "exit_code", None) == 4
        assert "already" in str(refused.exception)
        wait_until(
            lambda: query(outbox.dsn, "SELECT lease_until < now() FROM outbox.replay")[0][0],
            "the lease's end",
        )
        done = replayed(small, "go-on", "1")
        assert (done["state"], done["events_sent"]) == ("done", 96)
        plan.write()
        # It finds the replay finished, and has nothing left to say.
        assert first.wait() in (0, 4), first.log()
    assert_replayed(watcher, done["replay_uuid"], outbox.written)


@pytest.mark.guarantee(75)
def test_sigterm_ends_a_replay_between_transactions_and_continue_continues(
    outbox: Outbox, small: Settings, watcher: Watcher, tmp_path: Path
) -> None:
    for batch in range(1, 5):
        outbox.batch(simple(batch, keys=8))
    deliver(small)
    with ReplayProcess(small, tmp_path / "log", "start", "--all", "--yes", "--rate", "5") as process:
        wait_until(
            lambda: query(outbox.dsn, "SELECT coalesce(max(seq), 0) FROM outbox.replay")[0][0] > 0,
            "a transaction",
        )
        os.kill(process.process.pid, 15)
        assert process.wait() == 0, process.log()
        assert "replay 1 interrupted" in process.log()
    (shown,) = [one for one in _listed(small) if one["replay_id"] == 1]
    assert shown["state"] == "interrupted"
    assert 0 < shown["events_sent"] < 96
    done = replayed(small, "go-on", "1", "--rate", "0")
    assert_replayed(watcher, done["replay_uuid"], outbox.written)


@pytest.mark.guarantee(75)
def test_pause_and_cancel_from_another_process_end_it_and_continue_continues_exactly(
    outbox: Outbox, small: Settings, watcher: Watcher, tmp_path: Path
) -> None:
    for batch in range(1, 5):
        outbox.batch(simple(batch, keys=8))
    deliver(small)
    with ReplayProcess(small, tmp_path / "log", "start", "--all", "--yes", "--rate", "5") as process:
        wait_until(
            lambda: query(outbox.dsn, "SELECT coalesce(max(seq), 0) FROM outbox.replay")[0][0] > 0,
            "a transaction",
        )
        (running,) = _listed(small)
        assert (running["state"], running["held"]) == ("running", True)
        assert running["eta"] is not None
        replayed(small, "pause", "1")
        assert process.wait() == 0, process.log()
        assert "replay 1 paused" in process.log()
    (paused,) = _listed(small)
    assert paused["state"] == "paused"
    done = replayed(small, "go-on", "1", "--rate", "0")
    assert_replayed(watcher, done["replay_uuid"], outbox.written)
    over = replay(small, "pause", "1")
    assert "replay 1 is done" in str(over.exception)

    with ReplayProcess(small, tmp_path / "log2", "start", "--all", "--yes", "--rate", "5") as process:
        wait_until(
            lambda: (
                query(outbox.dsn, "SELECT max(seq) FROM outbox.replay WHERE replay_id = 2")[0][0] or 0 > 0
            ),
            "a transaction",
        )
        replayed(small, "cancel", "2")
        assert process.wait() == 0, process.log()
    assert "replay 2 is cancelled" in str(replay(small, "go-on", "2").exception)
    assert _listed(small) == []


def _listed(settings: Settings) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = replayed(settings, "list")  # type: ignore[assignment]
    return found
