"""A publisher is ready while what there is to deliver is being delivered; else it says why not."""

from dataclasses import replace

import pytest

from publisher.monitoring.health import LaneHealth, LaneState, ProcessHealth
from publisher.monitoring.readiness import HealthSnapshot, LaneSnapshot, judge

LANE = LaneSnapshot(epoch=1, lane=0, state="running", reason="", progress_s_ago=0.5, seq=7)
OTHER = replace(LANE, lane=1)
SEEN = HealthSnapshot(
    phase="running",
    assignment_error="",
    assignment_read_s_ago=0.5,
    heartbeat_s_ago=1.0,
    has_epoch=True,
    unheld=(),
    lanes=(LANE, OTHER),
)


def reasons(seen: HealthSnapshot) -> list[str]:
    return judge(seen, progress_s=60, poll_s=1, lease_s=10).reasons


def test_lanes_that_get_on_are_ready() -> None:
    verdict = judge(SEEN, progress_s=60, poll_s=1, lease_s=10)
    assert verdict.holds
    assert verdict.details["lanes"][0] == {
        "epoch": 1,
        "lane": 0,
        "state": "running",
        "reason": None,
        "progress_s_ago": 0.5,
        "seq": 7,
        "transaction_rows": None,
    }


@pytest.mark.parametrize(
    ("lane", "reason"),
    [
        (replace(LANE, progress_s_ago=60.9), None),
        (
            replace(LANE, progress_s_ago=61.1),
            "lane 0 has been stalled for 61 s: no transaction was committed, and rows may wait",
        ),
        (replace(LANE, state="opening", seq=None), "lane 0 has been opening for 0.5 s"),
        (
            replace(LANE, state="retrying", reason="Kafka: timed out"),
            "lane 0 is retrying: Kafka: timed out",
        ),
        (replace(LANE, state="stopped", reason="kafka_lost: gone"), "lane 0 is stopped: kafka_lost: gone"),
    ],
)
def test_one_lane_that_does_not_get_on_is_named_with_its_reason(
    lane: LaneSnapshot, reason: str | None
) -> None:
    assert reasons(replace(SEEN, lanes=(lane, OTHER))) == ([] if reason is None else [reason])


def test_every_lane_that_does_not_get_on_is_named() -> None:
    lanes = tuple(replace(lane, state="stopped", reason="gone") for lane in SEEN.lanes)
    assert reasons(replace(SEEN, lanes=lanes)) == ["lane 0 is stopped: gone", "lane 1 is stopped: gone"]


@pytest.mark.guarantee(132)
@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (replace(SEEN, phase="starting", lanes=()), "starting: Postgres and Kafka have not answered yet"),
        (replace(SEEN, phase="stopping"), "the process is stopping"),
        (
            replace(SEEN, assignment_error="server closed"),
            "cannot read the assignment of lanes: server closed",
        ),
        (replace(SEEN, assignment_read_s_ago=61.1), "has not read the assignment of lanes for 61 s"),
        (replace(SEEN, heartbeat_s_ago=10.4), "no heartbeat for 10 s: other processes take over the lanes"),
        (replace(SEEN, lanes=(), unheld=((0, 0.0), (2, 9.0))), "nobody holds lanes 0, 2"),
        # Those of a process that lives, and takes none.
        (replace(SEEN, unheld=((2, 60.9), (3, 61.1))), "nobody holds lanes 3"),
    ],
)
def test_a_process_that_cannot_deliver_says_why(seen: HealthSnapshot, reason: str) -> None:
    assert reasons(seen) == [reason]


@pytest.mark.parametrize(
    ("seen", "note"),
    [
        (replace(SEEN, lanes=()), "standing by: other processes hold every lane that has work"),
        (
            replace(SEEN, lanes=(), has_epoch=False),
            "there are no lanes yet: the job makes them when it starts for the first time",
        ),
    ],
)
def test_a_process_with_nothing_to_deliver_is_ready_and_says_so(seen: HealthSnapshot, note: str) -> None:
    verdict = judge(seen, progress_s=60, poll_s=1, lease_s=10)
    assert (verdict.reasons, verdict.details["notes"]) == ([], [note])


def test_a_lane_is_as_its_last_step_left_it() -> None:
    condition, lane = ProcessHealth(), LaneHealth(1, 0)
    assert reasons(condition.snapshot()) == ["starting: Postgres and Kafka have not answered yet"]
    condition.worker_started(lane)
    condition.assignment_read(has_epoch=True)
    assert reasons(condition.snapshot())[0].startswith("lane 0 has been opening")
    lane.failed(LaneState.RETRYING, "Kafka: timed out")
    assert reasons(condition.snapshot()) == ["lane 0 is retrying: Kafka: timed out"]
    lane.progressed(3)
    assert reasons(condition.snapshot()) == []
    lane.failed(LaneState.STOPPED, "gone")
    lane.restarted_at(3)  # opened anew, and no further
    assert reasons(condition.snapshot()) == ["lane 0 is stopped: gone"]
    lane.restarted_at(4)
    assert reasons(condition.snapshot()) == []
    condition.assignment_read(has_epoch=True, unheld=[5, 3])
    since = dict(condition.snapshot().unheld)
    condition.assignment_read(has_epoch=True, unheld=[4, 5])
    unheld = dict(condition.snapshot().unheld)
    assert (list(since), list(unheld)) == ([3, 5], [4, 5])
    assert unheld[5] >= unheld[4]  # counted from the first look that saw it so
    condition.assignment_failed("server closed")
    assert reasons(condition.snapshot()) == ["cannot read the assignment of lanes: server closed"]
    condition.assignment_read(has_epoch=True)
    condition.worker_ended(LaneHealth(1, 0))  # another worker's on the same lane
    assert condition.lanes() == [lane]
    condition.worker_ended(lane)
    assert judge(condition.snapshot(), progress_s=60, poll_s=1, lease_s=10).details["notes"]
    condition.stopping()
    assert reasons(condition.snapshot()) == ["the process is stopping"]
