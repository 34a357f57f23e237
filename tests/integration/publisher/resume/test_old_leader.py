"""An old leader that is cut off from its cluster does not know what a dead publisher committed: no lane is moved for its word."""

import signal
from pathlib import Path

import pytest

from devstack.kafka import KafkaServer
from service.errors import UnavailableError
from service.lifecycle.fault_points import Action, Fault, FaultPlan
from tests.support.outbox.batches import Outbox, simple
from tests.support.outbox.deliveries import deliver, drained
from tests.support.outbox.old_leader import OldLeader
from tests.support.outbox.restoring import assert_seen, progress_topic, resume, total
from tests.support.processes.publishers import publisher_service, settings_for
from tests.support.waiting import wait_until
from tests.support.watching import Watcher

EVENTS = 12  # of simple(n, keys=4)


@pytest.mark.guarantee(60)
def test_a_resume_does_not_believe_an_old_leader_that_does_not_know_what_a_dead_publisher_committed(
    database: str,
    topic: str,
    kafka: KafkaServer,
    watcher: Watcher,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Believed, it would announce less than is sent again, with a record numbered like the one that it hides."""
    outbox, plan = Outbox(database, topic, lanes=1), FaultPlan(tmp_path / "plan")
    settings = settings_for(database, kafka.bootstrap_servers, idle_progress_s=600)
    outbox.batch(simple(1, keys=4))
    dying = publisher_service(
        settings, tmp_path / "dying.log", {"OUTBOX_TESTING__FAULT_FILE": str(plan.file)}
    )
    with dying:
        wait_until(lambda: drained(database), dying.post_mortem)
        plan.write(Fault("transaction.after_commit", Action.KILL))
        outbox.batch(simple(2, keys=4))
        assert dying.wait() == -signal.SIGKILL
    leader = OldLeader(monkeypatch, progress_topic(database), 1_000)
    with pytest.raises(UnavailableError, match="an old leader may have answered"):
        resume(settings, "--from", "batch", "1", "--yes")
    assert leader.answered

    leader.left = 0
    report = resume(settings, "--from", "batch", "1", "--yes")
    assert total(report, "again") == 2 * EVENTS
    deliver(settings)
    assert_seen(watcher, 2 * outbox.written)
