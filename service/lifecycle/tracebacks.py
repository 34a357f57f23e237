"""Releases the objects of failed work after a failure that is survived.

A traceback holds each of its frames with all variables, and a frame often holds the exception once more: in a Future, in a library's own
variables. Only the cycle collector ends such a circle, and a process that moves rows collects rarely (service/lifecycle/allocators.py).
"""

import traceback
from typing import TypeVar

Failure = TypeVar("Failure", bound=BaseException)


def release_frames(error: BaseException) -> None:
    """Clear the variables of all frames that `error` and what led to it have left. The traceback itself stays, for the log."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        traceback.clear_frames(each.__traceback__)  # passes over frames that still run
        waiting += [each.__cause__, each.__context__]


def without_traceback(error: Failure) -> Failure:
    """Return the same failure to be raised elsewhere: an exception of its own, which leads to no frame."""
    found = type(error).__new__(type(error), *error.args)
    found.args = error.args
    found.__dict__.update(error.__dict__)
    return found
