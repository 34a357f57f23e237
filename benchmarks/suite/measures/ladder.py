"""The highest rung of a ladder that holds, with few attempts. Pure."""

from collections.abc import Callable, Sequence


def highest(
    ladder: Sequence[float], attempt: Callable[[float], bool], proof: Callable[[float], bool]
) -> float | None:
    """Return the highest rung found for which `proof` holds; None where none does. `ladder` is ascending.

    The short `attempt` finds by bisection where to begin, as if what holds on one rung held on all below. The long `proof` decides,
    from there downwards. So the result was proven, but a higher rung that an attempt failed on by chance is not tried again.
    """
    low, high = 0, len(ladder)
    while high - low > 1:
        middle = (low + high) // 2
        if attempt(ladder[middle]):
            low = middle
        else:
            high = middle
    return next((rung for rung in ladder[low::-1] if proof(rung)), None)
