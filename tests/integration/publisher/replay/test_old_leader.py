"""An old leader that is cut off from its cluster does not know what a dead replay committed: nothing is sent again for its word."""

import signal
from pathlib import Path

import pytest

from publisher.replay import progress_record
from service.lifecycle.fault_points import Action, Fault, FaultPlan
from service.settings import Settings
from tests.support.outbox.batches import Outbox, simple
from tests.support.outbox.deliveries import deliver
from tests.support.outbox.old_leader import OldLeader
from tests.support.outbox.replays import ReplayProcess, assert_replayed, replayed
from tests.support.queries import query
from tests.support.watching import Watcher


def test_a_replay_does_not_believe_an_old_leader_that_does_not_know_what_a_dead_process_committed(
    outbox: Outbox, settings: Settings, watcher: Watcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for batch in range(1, 5):
        outbox.batch(simple(batch, keys=8))
    publisher = settings.publisher.model_copy(update={"transaction_sessions": 4})
    small = Settings.model_construct(postgres=settings.postgres, kafka=settings.kafka, publisher=publisher)
    deliver(small)
    plan = FaultPlan(tmp_path / "faults.json")
    plan.write(Fault("transaction.after_commit", Action.KILL, hit=2))
    with ReplayProcess(small, tmp_path / "log", "start", "--all", "--yes", fault_file=plan.file) as dying:
        assert dying.wait() == -signal.SIGKILL, dying.log()
    leader = OldLeader(monkeypatch, "-replays", 3)
    done = replayed(small, "go-on", "1")
    assert_replayed(watcher, done["replay_uuid"], outbox.written)
    assert leader.answered == 3


def test_what_other_replays_write_to_the_partition_keeps_none_from_going_on(
    outbox: Outbox, settings: Settings, watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox.batch(simple(1, keys=8))
    deliver(settings)
    monkeypatch.setattr(progress_record, "PARTITIONS", 1)
    replayed(settings, "start", "--all", "--yes")
    leader = OldLeader(monkeypatch, "-replays", 1)
    done = replayed(settings, "start", "--all", "--yes")
    assert_replayed(watcher, done["replay_uuid"], outbox.written)
    opened = query(
        outbox.dsn, "SELECT lease_token FROM outbox.replay WHERE replay_uuid = %s", done["replay_uuid"]
    )
    assert (leader.answered, opened) == (1, [(1,)])
