"""A failure that was survived holds nothing of the work that failed, though nobody looks for cycles."""

import gc
import traceback
import weakref
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from service.lifecycle.tracebacks import release_frames, without_traceback


class Rows:
    """What a failed work had read."""


@pytest.fixture(autouse=True)
def _nobody_collects() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def failed(held: list["weakref.ref[Rows]"], again: bool = False) -> Exception:
    """Fail as a library may: its variables hold the future that holds the failure."""
    answer: Future[None] = Future()

    def work() -> None:
        rows = Rows()
        held.append(weakref.ref(rows))
        answer.set_exception(ValueError("first"))
        try:
            answer.result()
        except ValueError as error:
            if again:
                raise RuntimeError("second") from error
            raise

    try:
        work()
    except Exception as error:  # noqa: BLE001 - the test's own
        return error
    raise AssertionError


@pytest.mark.parametrize("again", [False, True])
def test_its_frames_hold_nothing_any_more_and_its_traceback_is_still_there(again: bool) -> None:
    held: list[weakref.ref[Rows]] = []
    error = failed(held, again)
    assert held[0]() is not None
    release_frames(error)
    assert held[0]() is None
    assert "in work" in "".join(traceback.format_exception(error))


def test_a_failure_that_leads_to_itself_is_released_too() -> None:
    held: list[weakref.ref[Rows]] = []
    error = failed(held)
    error.__context__ = RuntimeError("around")
    error.__context__.__context__ = error
    release_frames(error)
    assert held[0]() is None


def test_the_same_failure_for_another_thread_says_the_same_and_leads_nowhere() -> None:
    class OwnError(Exception):
        def __init__(self, code: int, *, retry: bool) -> None:
            super().__init__(f"code {code}")
            self.code, self.retry = code, retry

    held: list[weakref.ref[Rows]] = []
    error = OwnError(7, retry=True)
    error.__cause__ = failed(held)
    found = without_traceback(error)
    assert (str(found), found.code, found.retry) == ("code 7", 7, True)
    assert type(found) is OwnError
    assert (found.__traceback__, found.__cause__, found.__context__) == (None, None, None)
