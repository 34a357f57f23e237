"""What `spark-job diff` counts: each output of a session changes, is added, vanishes or stays."""

from datetime import UTC, datetime

from spark_job import Position, Session
from spark_job.testing import SessionRun, StoredOutput
from spark_job.trial.compared import Compared
from spark_job.trial.diff import RunDifference
from spark_job.trial.outbox import NotStored, StoredSession

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SESSION = Session("k", [], NOON, NOON, Position("in", 0, 10), Position("in", 0, 20))
A, B, C = (StoredOutput("out", b"k", value) for value in (b"a", b"b", b"c"))


def compared(
    now: tuple[StoredOutput, ...],
    was: tuple[StoredOutput, ...] | NotStored,
    start: int = 10,
    failure: str | None = None,
) -> Compared:
    stored = was if isinstance(was, NotStored) else StoredSession(3, 0, start, was)
    return Compared(SessionRun(SESSION, now, failure), stored)


def test_each_output_is_counted_once() -> None:
    sessions = [
        compared((A, B), (A, B)),
        compared((A, C), (A, B, C)),
        compared((A, B), (A,)),
        compared((), (A, B), failure="Traceback"),
        compared((A,), NotStored("dead_letter", "of then")),
        compared((A,), NotStored("absent", "removed")),
        # Nothing can be said of these.
        compared((A,), NotStored("erased", "it was erased")),
        compared((A,), (B,), start=4),
    ]
    found = RunDifference(7, sessions, None)
    assert found.outputs == {"changed": 1, "added": 3, "vanished": 3, "same": 4}
    assert (found.failed, found.differing) == (1, sessions[1:6])
    lines = list(found.lines())
    assert lines[-2].startswith("sessions since batch 7: 8, failed 1, not in the outbox 1, altered 3, ")
    assert lines[-1] == "outputs: 1 changed, 3 added, 3 vanished, 4 same"
    assert found.to_json()["outputs"] == found.outputs


def test_a_session_without_outputs_for_which_the_transform_fails_differs() -> None:
    session = compared((), (), failure="Traceback")
    assert RunDifference(7, [session], None).differing == [session]


def test_where_nothing_differs_nothing_is_shown_but_the_counts() -> None:
    found = RunDifference(7, [compared((A,), (A,))], "--last 1")
    assert found.differing == []
    assert list(found.lines()) == [
        "sessions since batch 7: 1, same as in the outbox 1",
        "outputs: 0 changed, 0 added, 0 vanished, 1 same",
        "No older session was compared: --last 1 was reached",
    ]
