"""Releases the objects of failed work after a failure that is survived.

A traceback holds each of its frames with all variables, and a frame often holds the exception: in a Future, or in a library's variables.
Only the garbage collector frees such a cycle, and a process that moves rows rarely runs it (service/lifecycle/allocators.py).
"""

import traceback
from typing import TypeVar

Failure = TypeVar("Failure", bound=BaseException)


def release_frames(error: BaseException) -> None:
    """Clear the variables of all frames of `error` and its causes. The traceback itself stays, for the log."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        traceback.clear_frames(each.__traceback__)  # skips running frames
        waiting += [each.__cause__, each.__context__]


def without_traceback(error: Failure) -> Failure:
    """Return a copy of the failure, to be raised elsewhere, that refers to no frame."""
    found = type(error).__new__(type(error), *error.args)
    found.args = error.args
    found.__dict__.update(error.__dict__)
    return found
