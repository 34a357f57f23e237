"""A resume does what was announced, or says that it no longer can."""

from types import SimpleNamespace
from typing import Any

import pytest

from contract.cursor import Cursor
from publisher.protocol.epochs import Epoch
from publisher.resume.decision import Way, move
from publisher.resume.planner import LanePlan, Planner, ResumePlan, ResumeRequest
from publisher.resume.survey import LaneEpoch
from service.errors import ContinuityError
from tests.support.surveys import found, record

BEFORE = [LaneEpoch(Epoch(1, 1, 1), None)]
CHANGED = [LaneEpoch(Epoch(1, 1, 1), 4), LaneEpoch(Epoch(2, 5, 3), None)]


@pytest.mark.parametrize("lanes_changed", [False, True])
def test_lanes_that_were_changed_since_the_plan_are_not_judged_by_it(
    monkeypatch: pytest.MonkeyPatch, lanes_changed: bool
) -> None:
    newest = record(7, Cursor(30))
    lane = found(newest, newest, seq=5, cursor=Cursor(20))
    steps: list[str] = []

    def looked(*_arguments: object) -> Any:
        steps.append("Kafka")
        return lane

    def ledger(*_arguments: object) -> Any:
        steps.append("ledger")
        return SimpleNamespace(epochs=CHANGED if lanes_changed else list(BEFORE))

    survey = SimpleNamespace(lane=looked, can_follow=lambda _: True, count=lambda *_: (0, 0))
    monkeypatch.setattr("publisher.resume.planner.read_ledger", ledger)
    monkeypatch.setattr(Planner, "survey", lambda *_arguments, **_named: survey)
    nothing: Any = None
    binding: Any = SimpleNamespace(
        found=SimpleNamespace(outbox_uuid=newest.outbox_uuid), cluster_id="cluster"
    )
    known: Any = SimpleNamespace(epochs=BEFORE, end=30)
    planned = LanePlan(move(lane, Cursor(30)), (0, 0), (0, 0), (0, 0))
    plan = ResumePlan(ResumeRequest(Way.KAFKA), binding, known, [planned], [], None)
    planner = Planner(nothing, nothing, nothing)
    if lanes_changed:
        with pytest.raises(ContinuityError, match=r"lanes were changed.*run the command again"):
            planner.fenced(plan, planned)
    else:
        now = planner.fenced(plan, planned)
        assert now is not None
        assert now.same_as(planned)
    # Kafka first, or an epoch that begins in between has records there that the ledger read before does not explain.
    assert steps == ["Kafka", "ledger"]
