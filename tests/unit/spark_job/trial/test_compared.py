"""What is altered, missing or new is told by each output's index, and why there is nothing is told, too."""

from datetime import UTC, datetime

import pytest

from spark_job import Position, Session
from spark_job.testing import SessionRun, StoredOutput
from spark_job.trial.compared import Compared
from spark_job.trial.outbox import NotStored, StoredSession

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SESSION = Session("k", [], NOON, NOON, Position("in", 0, 10), Position("in", 0, 20))
A, B, C = (StoredOutput("out", b"k", value) for value in (b"a", b"b", b"c"))


def compared(now: tuple[StoredOutput, ...], was: tuple[StoredOutput, ...], start: int = 10) -> Compared:
    return Compared(SessionRun(SESSION, now), StoredSession(3, 0, start, was))


@pytest.mark.parametrize(
    ("now", "was", "state", "outputs"),
    [
        ((A, B), (A, B), "same", ["same", "same"]),
        ((), (), "same", []),
        ((A, C), (A, B), "altered", ["same", "altered"]),
        ((A,), (A, B), "altered", ["same", "missing"]),
        ((A, B, C), (A, B), "altered", ["same", "same", "new"]),
    ],
)
def test_outputs_are_compared_by_their_index(
    now: tuple[StoredOutput, ...], was: tuple[StoredOutput, ...], state: str, outputs: list[str]
) -> None:
    found = compared(now, was)
    assert (found.state, found.outputs) == (state, outputs)
    assert bool(found.difference) == (state == "altered")


def test_the_diff_goes_from_the_outbox_to_now() -> None:
    lines = compared((C,), (B,)).difference.splitlines()
    assert lines[:2] == ["--- outbox", "+++ now"]
    assert lines[-2:] == ["-  b", "+  c"]


def test_a_session_whose_start_was_not_read_is_not_called_altered() -> None:
    found = compared((C,), (B,), start=4)
    assert (found.state, found.difference) == ("begins_earlier", "")


def test_a_transform_that_fails_alters_even_a_session_without_outputs() -> None:
    found = Compared(SessionRun(SESSION, failure="Traceback"), StoredSession(3, 0, 10, ()))
    assert found.state == "altered"


def test_what_the_outbox_lacks_is_said() -> None:
    assert Compared(SessionRun(SESSION), NotStored("not_read", "why")).state == "not_read"
    assert Compared(SessionRun(SESSION), None).state is None
