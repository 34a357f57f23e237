"""Replays and resumes go through the protocol of the lanes: killed at any step of it and given again, each event is there once."""

from collections.abc import Callable

import pytest

from devstack.topics import create_topics
from service.fault_points import Action, Fault
from tests.support.faults.matrix import Matrix
from tests.support.faults.publisher_cells import AFTER_KAFKAS_COMMIT, ALL, Cell, play
from tests.support.faults.publisher_scenario import SetUp, Stage
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
    """The one replay of a stage, to a topic beside the lanes' own."""

    def __init__(self, stage: Stage, watcher: Watcher) -> None:
        self._stage = stage
        self._watcher = watcher

    def run(self, *faults: Fault) -> int:
        """Start it or go on with it, alone; return how the process ended."""
        begun = query(self._stage.dsn, "SELECT count(*) FROM outbox.replay")[0][0]
        arguments = (
            ["go-on", "1"] if begun else ["start", "--all", "--to-topic", self._watcher.topic, "--yes"]
        )
        return run(self._stage, ReplayProcess, arguments, *faults)

    def finish(self, _: Stage) -> str:
        """Go on to the end, and judge."""
        assert self.run() == 0
        ((uuid, state, events),) = query(
            self._stage.dsn, "SELECT replay_uuid, state, events_sent FROM outbox.replay"
        )
        assert (state, events) == ("done", len(self._stage.outbox.written))
        assert_replayed(self._watcher, str(uuid), self._stage.outbox.written)
        return f"{events} events replayed once"


def run(stage: Stage, kind: type[ReplayProcess], arguments: list[str], *faults: Fault) -> int:
    """Run a command that meets these faults; return its exit code. Fails unless exactly these fired."""
    fired = stage.plan.fired()
    stage.plan.write(*faults)
    with kind(
        stage.settings, stage.folder / "command.log", *arguments, fault_file=stage.plan.file
    ) as process:
        code = process.wait()
        assert [fault for fault, _ in stage.plan.fired()[len(fired) :]] == list(faults), process.log()[
            -2_000:
        ]
    stage.plan.write()
    return code


def replaying(point: str, replay: Replaying, *, last: bool) -> Cell:
    """A replay dies; the next life, which dies at the next point, begins with its recovery."""

    def strike(_: Stage) -> str:
        if point == "delivery.after_check":
            # So that there is a transaction to fill in.
            assert replay.run(Fault(AFTER_KAFKAS_COMMIT, Action.KILL)) == KILLED
        assert replay.run(Fault(point, Action.KILL)) == KILLED
        return "the replay is unfinished"

    return Cell("a replay of everything", point, Action.KILL, strike, replay.finish if last else None)


def resuming(point: str) -> Cell:
    """The progress topic is lost, and the resume from Postgres' word dies."""

    def strike(stage: Stage) -> str:
        if stage.publisher.is_alive():
            stage.publisher.kill()
        delete_topic(stage.bootstrap, progress_topic(stage.dsn))
        assert run(stage, ResumeProcess, ["--from", "mirror", "--yes"], Fault(point, Action.KILL)) == KILLED
        return "some lanes resumed, or none"

    def recover(stage: Stage) -> str:
        assert run(stage, ResumeProcess, ["--from", "mirror", "--yes"]) == 0
        stage.feed()
        return f"given again; {stage.recover()}"

    return Cell("the progress topic is lost", point, Action.KILL, strike, recover)


@pytest.mark.faults
@pytest.mark.timeout(1_800)
def test_a_replay_killed_at_any_step_sends_each_event_once(
    set_up: SetUp, matrix: Matrix, tell: Callable[[str], None], topic_prefix: str
) -> None:
    stage, topic = set_up(), f"{topic_prefix}replayed"
    create_topics(stage.bootstrap, {topic: (3, {})})
    deliver(stage)
    stage.publisher.kill()  # the plan's faults are the replay's alone
    with Watcher(stage.bootstrap, topic, tolerant=True) as watcher:
        replay = Replaying(stage, watcher)
        cells = [replaying(point, replay, last=point == REPLAYING[-1]) for point in REPLAYING]
        play(matrix, "a replay that is killed", cells, stage, tell)


@pytest.mark.faults
@pytest.mark.timeout(1_800)
def test_a_resume_killed_at_any_step_and_given_again_delivers_each_event_once(
    set_up: SetUp, matrix: Matrix, tell: Callable[[str], None]
) -> None:
    stage = set_up()
    deliver(stage)
    play(matrix, "a resume that is killed", [resuming(point) for point in RESUMING], stage, tell)


def deliver(stage: Stage) -> None:
    """Have something in the outbox that was delivered."""
    stage.start()
    stage.feed(_BATCHES)
    stage.wait_until_drained()
