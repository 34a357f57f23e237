"""The highest rung of a ladder that holds, with few attempts. Pure."""

from collections.abc import Callable, Sequence


def highest(
    ladder: Sequence[float], attempt: Callable[[float], bool], proof: Callable[[float], bool]
) -> float | None:
    """Return the highest rung found for which `proof` holds; None where none does. `ladder` is ascending.

    The short `attempt` finds by bisection where to begin, as if what holds on one rung held on all below. The long `proof` decides,
    from there downwards. Where the first proof holds, the rungs above are attempted again and proven, as long as both hold: the attempt
    before may have failed by chance.
    """
    low, high = 0, len(ladder)
    while high - low > 1:
        middle = (low + high) // 2
        if attempt(ladder[middle]):
            low = middle
        else:
            high = middle
    if not proof(ladder[low]):
        return next((rung for rung in ladder[:low][::-1] if proof(rung)), None)
    while low + 1 < len(ladder) and attempt(ladder[low + 1]) and proof(ladder[low + 1]):
        low += 1
    return ladder[low]
