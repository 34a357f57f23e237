"""Lanes spread evenly over the living processes, with as few moves as that takes, whatever the order in which they look."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from publisher.assignment.assignor import Assignment, assign, fair_shares

PROCESSES = ["a", "b", "c", "d", "e"]
living_sets = st.sets(st.sampled_from(PROCESSES), min_size=1)
holder_lists = st.lists(st.sampled_from([None, *PROCESSES]), max_size=17)


def holders_of(found: list[str | None], living: set[str]) -> dict[int, str | None]:
    """Lanes by number; what a dead process held is free."""
    return {lane: holder if holder in living else None for lane, holder in enumerate(found)}


def settle(living: set[str], holders: dict[int, str | None], looks: list[str]) -> int:
    """Let processes look and act, first in the order of `looks`, then in turn until nobody has anything to do; return the moves."""
    moves = 0
    turns = 0
    queue = [process for process in looks if process in living]
    idle: set[str] = set()
    while idle != living:
        turns += 1
        assert turns < 200, "it never settles"
        me = queue.pop(0) if queue else sorted(living - idle)[0]
        todo = assign(me, living, holders)
        if todo == Assignment():
            idle.add(me)
            continue
        idle.clear()
        for lane in todo.give_up:
            assert holders[lane] == me
            holders[lane] = None
        for lane in todo.claim:
            assert holders[lane] is None
            holders[lane] = me
            moves += 1
    return moves


@pytest.mark.guarantee(100)
@given(living_sets, holder_lists, st.lists(st.sampled_from(PROCESSES), max_size=30))
def test_the_spread_is_even_within_one_and_no_lane_moves_needlessly(
    living: set[str], found: list[str | None], looks: list[str]
) -> None:
    holders = holders_of(found, living)
    before = Counter(holder for holder in holders.values() if holder is not None)
    # The fewest moves that any even spread takes: the fullest processes keep the larger shares.
    each, more = divmod(len(holders), len(living))
    fullest = sorted((before[process] for process in living), reverse=True)
    fewest = sum(max(0, each + (place < more) - held) for place, held in enumerate(fullest))
    assert settle(living, holders, looks) == fewest
    after = Counter(holders.values())
    assert {after[process] for process in living} <= {each, each + 1}
    assert after[None] == 0


@pytest.mark.guarantee(100)
@given(living_sets, holder_lists)
def test_no_two_processes_reach_for_the_same_lane(living: set[str], found: list[str | None]) -> None:
    holders = holders_of(found, living)
    claims = [lane for process in living for lane in assign(process, living, holders).claim]
    assert len(claims) == len(set(claims))


@given(living_sets, holder_lists)
def test_an_even_spread_is_left_alone(living: set[str], found: list[str | None]) -> None:
    holders = holders_of(found, living)
    settle(living, holders, [])
    assert all(assign(process, living, holders) == Assignment() for process in living)
    held = Counter(holders.values())
    assert fair_shares(living, holders) == {process: held[process] for process in living}


@given(living_sets, holder_lists)
def test_a_lane_that_something_else_holds_is_left_alone_and_moves_no_other(
    living: set[str], found: list[str | None]
) -> None:
    holders = holders_of(found, living)
    settle(living, holders, [])
    for lane in range(len(holders)):
        during = holders | {lane: "resume"}
        for process in living:
            todo = assign(process, living, during)
            assert lane not in todo.claim
            assert todo.give_up == ()


def test_a_process_whose_heartbeat_is_late_does_nothing() -> None:
    assert assign("late", {"a"}, {0: "late", 1: None}) == Assignment()
    assert assign("late", set(), {0: "late"}) == Assignment()
