"""Decides which process runs which lanes: an even spread with the fewest moves. Pure; every process comes to the same decision."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Assignment:
    """One process's next step: free lanes to claim, and lanes of its own to give up."""

    claim: tuple[int, ...] = ()
    give_up: tuple[int, ...] = ()


def fair_shares(living: Collection[str], holders: Mapping[int, str | None]) -> dict[str, int]:
    """Return how many lanes each process should hold: the lanes divided evenly, and one of the remaining lanes for some processes.

    The processes that already hold the most lanes get the remaining ones, so that the fewest lanes move; ties go by process id.
    """
    if not living:
        return {}
    held = _held(living, holders)
    each, more = divmod(len(holders), len(living))
    order = sorted(living, key=lambda process: (-len(held[process]), process))
    return {process: each + (rank < more) for rank, process in enumerate(order)}


def assign(
    me: str,
    living: Collection[str],
    holders: Mapping[int, str | None],
    rather_keep: Collection[int] = (),
) -> Assignment:
    """Return which lanes the process `me` should claim and give up.

    `holders`: every lane -> the process that holds it, None for a free lane. A lane whose holder is not a living process (a resume,
    say) counts towards the even spread and is left alone. A process that is not among the living, because its heartbeat is late, claims
    and gives up nothing: others may be taking over its lanes. `rather_keep`: lanes to give up last: stopped lanes, which no other process
    could deliver either.
    """
    if me not in living:
        return Assignment()
    sizes = fair_shares(living, holders)
    held = _held(living, holders)
    give_up = sorted(held[me], key=lambda lane: (lane not in rather_keep, lane))[sizes[me] :]
    # Every process distributes the free lanes in the same order, so that no two claim the same lane.
    free = sorted(lane for lane, holder in holders.items() if holder is None)
    for process, size in sizes.items():
        wanted = max(0, size - len(held[process]))
        dealt, free = free[:wanted], free[wanted:]
        if process == me:
            return Assignment(tuple(dealt), tuple(give_up))
    return Assignment((), tuple(give_up))


def only_deliverable_by(
    me: str, living: Collection[str], holders: Mapping[int, str | None], ended: Collection[int]
) -> frozenset[int]:
    """Return the lanes that only `me` could deliver: if no other process lives, all that have not ended, else none.

    If all of them are stopped, nothing can be delivered, and `me` may end. While other processes live, `me` stands by: it may get their
    lanes.
    """
    if set(living) != {me}:
        return frozenset()
    return frozenset(holders) - frozenset(ended)


def _held(living: Collection[str], holders: Mapping[int, str | None]) -> dict[str, list[int]]:
    held: dict[str, list[int]] = {process: [] for process in living}
    for lane, holder in sorted(holders.items()):
        if holder is not None and holder in held:
            held[holder].append(lane)
    return held
