"""A partition goes when it is past a limit and nobody needs it; else the reason says who, and what to do."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from publisher.retention.plan import (
    DropVerdict,
    LaneProgress,
    Needs,
    OpenAtUpgrade,
    Partition,
    ReplayNeed,
    plan_drops,
)

HOUR = 3_600


def partition(number: int, *, age_s: float | None = 10 * HOUR, size: int = 100) -> Partition:
    """Batches number * 10 to number * 10 + 9."""
    return Partition(f"p{number}", number * 10, number * 10 + 10, size, None, age_s)


def lane(through: int, **changes: Any) -> LaneProgress:
    values: dict[str, Any] = {"epoch": 1, "lane": 0, "from_batch": 1, "to_batch": None}
    values |= {"through": through, "holder": "host:1", "stopped_reason": None, "stopped_why": None} | changes
    return LaneProgress(**values)


def verdicts(
    needs: Needs, *, keep_s: int | None = HOUR, keep_bytes: int | None = None, n: int = 4
) -> list[str]:
    return [
        d.verdict.value
        for d in plan_drops([partition(number) for number in range(n)], needs, keep_s, keep_bytes)
    ]


def test_what_is_old_and_delivered_goes_and_what_takes_the_newest_batch_stays() -> None:
    assert verdicts(Needs(25, [lane(25)])) == ["drop", "drop", "in use", "in use"]
    assert verdicts(Needs(19, [lane(19)])) == ["drop", "in use", "in use", "in use"], (
        "batch 20 is not committed"
    )
    assert verdicts(Needs(20, [lane(20)])) == ["drop", "drop", "in use", "in use"]


def test_without_a_limit_nothing_goes() -> None:
    assert verdicts(Needs(35, [lane(35)]), keep_s=None) == ["kept", "kept", "kept", "in use"]


def test_by_time_the_newest_batch_of_a_partition_decides() -> None:
    found = plan_drops(
        [partition(0, age_s=HOUR + 1), partition(1, age_s=HOUR), partition(2)],
        Needs(25, [lane(25)]),
        HOUR,
        None,
    )
    assert [d.verdict for d in found] == [DropVerdict.DROP, DropVerdict.KEPT, DropVerdict.IN_USE]


def test_by_size_the_oldest_go_until_the_rest_fits() -> None:
    needs = Needs(35, [lane(35)])
    assert verdicts(needs, keep_s=None, keep_bytes=400) == ["kept", "kept", "kept", "in use"]
    assert verdicts(needs, keep_s=None, keep_bytes=399) == ["drop", "kept", "kept", "in use"]
    assert verdicts(needs, keep_s=None, keep_bytes=250) == ["drop", "drop", "kept", "in use"]
    assert verdicts(needs, keep_s=None, keep_bytes=0) == ["drop", "drop", "drop", "in use"]


def test_by_size_one_that_is_refused_counts_on() -> None:
    needs = Needs(35, [lane(35)], parked={3: 1})
    assert verdicts(needs, keep_s=None, keep_bytes=300) == ["refused", "drop", "kept", "in use"]


@pytest.mark.parametrize(
    ("needs", "words"),
    [
        (Needs(35, [lane(18)]), ["lane 0 of epoch 1", "up to batch 18", "host:1", "Wait"]),
        (Needs(35, [lane(18, holder=None)]), ["held by nobody", "Start `publisher run`"]),
        (Needs(35, [lane(18, stopped_reason="kafka_lost: gone", stopped_why="kafka_lost")]), ["stopped: kafka_lost: gone", "Fix that"]),
        (Needs(35, [lane(18, stopped_reason="retrying: no broker")]), ["held by host:1, retrying: no broker. Wait", "publisher status"]),
        (Needs(35, [lane(35), lane(0, lane=1, holder=None)]), ["lane 1 of epoch 1", "up to batch 0"]),
        (Needs(35, [lane(35)], parked={3: 9, 12: 2, 19: 1}), ["3 parked rows", "12 to 19", "publisher parked list"]),
        (Needs(35, [lane(35)], replays=[ReplayNeed(7, "paused", 19, 30)]), ["replay 7 (paused)", "publisher replay cancel 7"]),
        (Needs(35, [lane(35)], open_at_upgrade={"p1": [OpenAtUpgrade("T", 2, 99, 4, 12, 15)]}), ["T/2", "offset 99", "spark-job run"]),
    ],
)  # fmt: skip
def test_a_partition_that_is_needed_is_refused_with_who_needs_it_and_what_to_do(
    needs: Needs, words: list[str]
) -> None:
    found = plan_drops([partition(number) for number in range(4)], needs, HOUR, None)[1]
    assert found.verdict is DropVerdict.REFUSED
    (reason,) = found.reasons
    for word in words:
        assert word in reason


def test_an_epoch_that_is_over_is_delivered_when_its_lanes_have_come_to_its_end() -> None:
    lanes = [
        lane(14, to_batch=14),
        lane(35, epoch=2, from_batch=15),
        lane(14, epoch=2, lane=1, from_batch=15),
    ]
    assert verdicts(Needs(35, lanes[:2])) == ["drop", "drop", "drop", "in use"]
    assert verdicts(Needs(35, lanes)) == ["drop", "refused", "refused", "in use"], (
        "lane 1 of epoch 2 has not begun"
    )
    assert verdicts(Needs(35, [lane(13, to_batch=14), lanes[1]])) == ["drop", "refused", "drop", "in use"]


@pytest.mark.guarantee(95)
@given(
    through=st.lists(st.integers(0, 45), min_size=1, max_size=4),
    change=st.integers(2, 40),
    parked=st.sets(st.integers(1, 45), max_size=3),
    replay=st.tuples(st.integers(1, 45), st.integers(1, 45)),
    newest=st.integers(0, 45),
)
def test_no_batch_that_is_needed_is_ever_in_a_partition_that_goes(
    through: list[int], change: int, parked: set[int], replay: tuple[int, int], newest: int
) -> None:
    """Against the obvious model: one batch after the other."""
    lanes = [
        *(lane(min(n, change - 1), lane=i, to_batch=change - 1) for i, n in enumerate(through)),
        *(lane(max(n, change - 1), lane=i, epoch=2, from_batch=change) for i, n in enumerate(through)),
    ]
    needs = Needs(newest, lanes, dict.fromkeys(parked, 1), [ReplayNeed(1, "running", *replay)])
    needed = {batch for n in through for batch in range(n + 1, 50)} | parked | set(range(newest, 50))
    needed |= set(range(replay[0], replay[1] + 1))
    for decision in plan_drops([partition(number) for number in range(5)], needs, HOUR, None):
        batches = range(max(1, decision.partition.first), decision.partition.end)
        assert (decision.verdict is DropVerdict.DROP) == needed.isdisjoint(batches)
