"""Waiting for a condition, which is what tests do instead of sleeping."""

import time
from collections.abc import Callable

DEADLINE_S = 90.0
LONG_DEADLINE_S = 300.0
"""For what starts and ends JVMs, on a machine that does much else."""


def wait_until(
    condition: Callable[[], object],
    what: str | Callable[[], str],
    timeout_s: float = DEADLINE_S,
    *,
    poll_s: float = 0.02,
) -> None:
    """Return once `condition` holds; fail with `what` did not happen."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s:g} s: {what if isinstance(what, str) else what()}")
        time.sleep(poll_s)
