"""Replays and resumes go through the protocol of the lanes: killed at any step of it and given again, each event is there once."""

from collections.abc import Callable

import pytest

from devstack.topics import create_topics
from service.lifecycle.fault_points import Action, Fault
from tests.support.faults.matrix import Matrix
from tests.support.faults.publisher_cells import AFTER_KAFKAS_COMMIT, ALL, PublisherCell, run_cells
from tests.support.faults.publisher_scenario import PublisherScenario, SetUp
from tests.support.outbox.replays import ReplayProcess, ResumeProcess, assert_replayed
from tests.support.outbox.restoring import delete_topic, progress_topic
from tests.support.queries import query
from tests.support.watching import Watcher

KILLED = -9
REPLAYING = ["replay.after_creation", *ALL, "replay.before_done"]
# A resume has no rows to read, admit and send.
OF_ROWS = {"delivery.after_read", "delivery.after_admission", "transaction.during_produce"}
RESUMING = [point for point in ALL if point not in OF_ROWS]
_BATCHES = 4


class Replaying:
    """The one replay of a scenario, to a topic beside the lanes' own."""

    def __init__(self, scenario: PublisherScenario, watcher: Watcher) -> None:
        self._scenario = scenario
        self._watcher = watcher

    def run(self, *faults: Fault) -> int:
        """Start it or continue with it, alone; return how the process ended."""
        begun = query(self._scenario.dsn, "SELECT count(*) FROM outbox.replay")[0][0]
        arguments = (
            ["go-on", "1"] if begun else ["start", "--all", "--to-topic", *self._watcher.topics, "--yes"]
        )
        return run(self._scenario, ReplayProcess, arguments, *faults)

    def finish(self, _: PublisherScenario) -> str:
        """Continue to the end, and judge."""
        assert self.run() == 0
        ((uuid, state, events),) = query(
            self._scenario.dsn, "SELECT replay_uuid, state, events_sent FROM outbox.replay"
        )
        assert (state, events) == ("done", len(self._scenario.outbox.written))
        assert_replayed(self._watcher, str(uuid), self._scenario.outbox.written)
        return f"{events} events replayed once"


def run(scenario: PublisherScenario, kind: type[ReplayProcess], arguments: list[str], *faults: Fault) -> int:
    """Run a command that meets these faults; return its exit code. Fails unless exactly these fired."""
    fired = scenario.plan.fired()
    scenario.plan.write(*faults)
    with kind(
        scenario.settings, scenario.folder / "command.log", *arguments, fault_file=scenario.plan.file
    ) as process:
        code = process.wait()
        assert [fault for fault, _ in scenario.plan.fired()[len(fired) :]] == list(faults), process.log()[
            -2_000:
        ]
    scenario.plan.write()
    return code


def replaying(point: str, replay: Replaying, *, last: bool) -> PublisherCell:
    """A replay dies; the next life, which dies at the next point, begins with its recovery."""

    def strike(_: PublisherScenario) -> str:
        if point == "delivery.after_check":
            # So that there is a transaction to fill in.
            assert replay.run(Fault(AFTER_KAFKAS_COMMIT, Action.KILL)) == KILLED
        assert replay.run(Fault(point, Action.KILL)) == KILLED
        return "the replay is unfinished"

    return PublisherCell(
        "a replay of everything", point, Action.KILL, strike, replay.finish if last else None
    )


def resuming(point: str) -> PublisherCell:
    """The progress topic is lost, and the resume from Postgres' word dies."""

    def strike(scenario: PublisherScenario) -> str:
        if scenario.publisher.is_alive():
            scenario.publisher.kill()
        delete_topic(scenario.bootstrap, progress_topic(scenario.dsn))
        assert (
            run(scenario, ResumeProcess, ["--from", "mirror", "--yes"], Fault(point, Action.KILL)) == KILLED
        )
        return "some lanes resumed, or none"

    def recover(scenario: PublisherScenario) -> str:
        assert run(scenario, ResumeProcess, ["--from", "mirror", "--yes"]) == 0
        scenario.feed()
        return f"given again; {scenario.recover()}"

    return PublisherCell("the progress topic is lost", point, Action.KILL, strike, recover)


@pytest.mark.guarantee(75)
@pytest.mark.faults
@pytest.mark.timeout(1_800)
def test_a_replay_killed_at_any_step_sends_each_event_once(
    set_up: SetUp, matrix: Matrix, tell: Callable[[str], None], topic_prefix: str
) -> None:
    scenario, topic = set_up(), f"{topic_prefix}replayed"
    create_topics(scenario.bootstrap, {topic: (3, {})})
    deliver(scenario)
    scenario.publisher.kill()  # the plan's faults are the replay's alone
    with Watcher(scenario.bootstrap, topic, tolerant=True) as watcher:
        replay = Replaying(scenario, watcher)
        cells = [replaying(point, replay, last=point == REPLAYING[-1]) for point in REPLAYING]
        run_cells(matrix, "a replay that is killed", cells, scenario, tell)


@pytest.mark.guarantee(88)
@pytest.mark.faults
@pytest.mark.timeout(1_800)
def test_a_resume_killed_at_any_step_and_given_again_delivers_each_event_once(
    set_up: SetUp, matrix: Matrix, tell: Callable[[str], None]
) -> None:
    scenario = set_up()
    deliver(scenario)
    run_cells(matrix, "a resume that is killed", [resuming(point) for point in RESUMING], scenario, tell)


def deliver(scenario: PublisherScenario) -> None:
    """Have something in the outbox that was delivered."""
    scenario.start()
    scenario.feed(_BATCHES)
    scenario.wait_until_drained()
