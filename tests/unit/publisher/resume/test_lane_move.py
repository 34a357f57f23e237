"""A lane is moved as it was announced, however long the person who is asked takes to answer."""

from types import SimpleNamespace
from typing import Any

import pytest

from contract.cursor import Cursor
from publisher.resume import lane_move
from publisher.resume.decision import Way, move
from publisher.resume.lane_move import LaneMove
from publisher.resume.planner import LanePlan, ResumePlan, ResumeRequest
from service.errors import ContinuityError
from service.settings import KafkaSettings, PublisherSettings
from tests.support.lanes import IDENTITY
from tests.support.surveys import found, record

NEWEST = record(7, Cursor(30))


def plan_of(events: int) -> LanePlan:
    lane = found(NEWEST, NEWEST, seq=5, cursor=Cursor(20))
    return LanePlan(move(lane, Cursor(30)), (1, events), (0, 0), (0, 0))


class Postgres:
    """The lane's row. A publisher takes it once the lease has run out, and fences the command."""

    def __init__(self) -> None:
        self.token = self.fenced_with = self.released = 0

    def execute(self, sql: Any, parameters: dict[str, Any]) -> Any:
        if "lease_token + 1" in str(sql):
            self.token += 1
            return SimpleNamespace(fetchone=lambda: (self.token,))
        if "lease_holder = NULL" in str(sql) and parameters["lease_token"] == self.token:
            self.released += 1
            self.publisher_takes_the_lane()
        return SimpleNamespace(rowcount=1)

    def publisher_takes_the_lane(self) -> None:
        self.token += 1
        self.fenced_with = self.token


class Mover(LaneMove):
    """Its steps in Kafka are counted; a send needs that nobody has fenced it since."""

    def __init__(
        self, postgres: Postgres, plans: list[LanePlan | None], late: list[bool], answer: bool
    ) -> None:
        settings = SimpleNamespace(publisher=PublisherSettings(), kafka=KafkaSettings())
        context: Any = SimpleNamespace(settings=settings, holder="me", identity=IDENTITY, progress_topic="p")
        planner: Any = SimpleNamespace(fenced=lambda *_: plans.pop(0))
        binding: Any = None
        plan = ResumePlan(ResumeRequest(Way.KAFKA), binding, binding, [], [], None)
        known: Any = postgres
        self.postgres, self.asked, self.moved = postgres, 0, False

        def ask(_planned: LanePlan) -> bool:
            self.asked += 1
            if late.pop(0):
                postgres.publisher_takes_the_lane()
            return answer

        super().__init__(context, known, planner, plan, plan_of(0), ask)

    def _fence(self) -> None:
        self.postgres.fenced_with = self.postgres.token

    def _record_missing(self, lease: Any) -> None:
        assert lease.token == self.postgres.token == self.postgres.fenced_with, "a publisher has the lane"

    def _progress(self) -> Any:
        return None

    def _mark(self, lease: Any) -> None: ...

    def _send(self, progress: Any) -> None:
        self.moved = True


def moved(
    patch: pytest.MonkeyPatch, plans: list[LanePlan | None], late: list[bool], *, answer: bool = True
) -> Mover:
    patch.setattr(lane_move, "add_lanes", lambda *_: None)
    patch.setattr(lane_move, "record_resume", lambda *_: None)
    patch.setattr("publisher.delivery.sender.Sender.begin", lambda *_: None)
    return Mover(Postgres(), plans, late, answer)


def test_an_answer_that_takes_longer_than_the_lease_moves_the_lane_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for late in (True, False):
        mover = moved(monkeypatch, [plan_of(5), plan_of(5)], [late])
        assert mover.run().again == (1, 5)
        # Released once, at the end: a publisher at work would change the plan before it can be carried out.
        assert (mover.asked, mover.moved, mover.postgres.released) == (1, True, 1)


def test_a_lane_that_moved_again_while_the_person_was_asked_is_asked_about_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mover = moved(monkeypatch, [plan_of(5), plan_of(9), plan_of(9)], [True, False])
    assert mover.run().again == (1, 9)
    assert (mover.asked, mover.moved) == (2, True)


def test_a_lane_that_continued_by_itself_while_the_person_was_asked_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mover = moved(monkeypatch, [plan_of(5), None], [True])
    mover.run()
    assert not mover.moved


def test_a_lane_is_not_moved_against_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    mover = moved(monkeypatch, [plan_of(5)], [False], answer=False)
    with pytest.raises(ContinuityError, match="moved, and its new plan was declined"):
        mover.run()
    assert not mover.moved
