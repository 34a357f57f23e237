"""An old leader that is cut off from its cluster answers with an old end: a lane does not take it for the end of what it delivered."""

import signal
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from devstack.kafka import KafkaServer
from publisher.kafka.topics import Topics
from service.lifecycle import fault_points
from service.lifecycle.fault_points import Action, Fault, FaultPlan
from tests.support.outbox.batches import Outbox, simple
from tests.support.outbox.deliveries import assert_exactly_once, drained
from tests.support.processes.publishers import RelayThread, publisher_service, settings_for
from tests.support.queries import query
from tests.support.reading import end_offsets
from tests.support.waiting import wait_until
from tests.support.watching import Watcher


class OldLeader:
    """Answers with the end that it knew when it was `cut_off`, for so many questions about the one partition of the progress topic."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answered = 0
        self._left = 0
        self._known = 0
        self._asked: Callable[[], dict[int, int]] = dict
        ends = Topics._ends

        def old_ends(
            topics: Topics, topic: str, partitions: Iterable[int], committed: bool
        ) -> dict[int, int]:
            if "progress" not in topic:
                return ends(topics, topic, partitions, committed)
            self._asked = lambda: ends(topics, topic, [0], False)
            if self._left:
                self._left -= 1
                self.answered += 1
                return {0: self._known}
            return self._asked()

        monkeypatch.setattr(Topics, "_ends", old_ends)

    def cut_off(self, questions: int, known: int | None = None) -> None:
        """From now on, or since the end was `known`."""
        self._known, self._left = self._asked()[0] if known is None else known, questions


@pytest.fixture
def plan(tmp_path: Path) -> Iterator[FaultPlan]:
    """The plan that this process follows."""
    made = FaultPlan(tmp_path / "plan.json")
    made.write()
    fault_points.arm(made.file)
    yield made
    fault_points.arm(None)


@pytest.mark.guarantee(60)
def test_a_lane_waits_while_an_old_leader_does_not_know_its_last_transaction(
    database: str,
    topic: str,
    kafka: KafkaServer,
    watcher: Watcher,
    plan: FaultPlan,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outbox, leader = Outbox(database, topic, lanes=1), OldLeader(monkeypatch)
    settings = settings_for(database, kafka.bootstrap_servers)
    outbox.batch(simple(1, keys=20))
    with RelayThread(settings) as relay:
        wait_until(lambda: drained(database), "the first batch")
        # The commit is in Kafka, Postgres does not know it, and the lane opens anew.
        leader.cut_off(3)
        plan.write(Fault("transaction.after_commit", Action.RAISE))
        outbox.batch(simple(2, keys=20))
        wait_until(lambda: drained(database), "the second batch")
        assert_exactly_once(outbox, watcher)
        assert (leader.answered, relay.error) == (3, None)


@pytest.mark.guarantee(60)
def test_a_takeover_does_not_believe_an_old_leader_that_does_not_know_what_a_dead_process_committed(
    database: str,
    topic: str,
    kafka: KafkaServer,
    watcher: Watcher,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outbox, leader, plan = (
        Outbox(database, topic, lanes=1),
        OldLeader(monkeypatch),
        FaultPlan(tmp_path / "plan"),
    )
    settings = settings_for(database, kafka.bootstrap_servers, idle_progress_s=600)
    ((uuid,),) = query(database, "SELECT outbox_uuid FROM outbox.identity")
    progress = f"{settings.publisher.progress_topic}-{uuid}"
    outbox.batch(simple(1, keys=20))
    dying = publisher_service(
        settings, tmp_path / "dying.log", {"OUTBOX_TESTING__FAULT_FILE": str(plan.file)}
    )
    with dying:
        wait_until(lambda: drained(database), dying.post_mortem)
        end = end_offsets(kafka.bootstrap_servers, [progress], committed=False)[progress, 0]
        plan.write(Fault("transaction.after_commit", Action.KILL))
        outbox.batch(simple(2, keys=20))
        assert dying.wait() == -signal.SIGKILL
    assert end_offsets(kafka.bootstrap_servers, [progress], committed=False)[progress, 0] > end
    leader.cut_off(3, known=end)
    with RelayThread(settings) as relay:
        wait_until(lambda: drained(database), "the delivery")
        assert_exactly_once(outbox, watcher)
        assert (leader.answered, relay.error) == (3, None)
