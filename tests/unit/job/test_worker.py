"""One call of the stateful operator: sessions transformed, failures kept, state written back. A stand-in holds Spark's state."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import orjson
import pandas as pd
import pyarrow as pa
import pytest

from db.errors import SettingsError
from spark_job import OutputEvent, Session, rows
from spark_job.packing import pack
from spark_job.pgcopy import nullable
from spark_job.sessions import AssemblySettings
from spark_job.worker import BucketWorker, TransformStoppedError

HERE = "tests.unit.job.test_worker"


def good(session: Session) -> Iterable[OutputEvent]:
    return [OutputEvent("t", f"{session.key}:{len(session.events)}:{session.start.topic}".encode())]


def raising(session: Session) -> Iterable[OutputEvent]:
    raise ValueError("no \ud800 luck\0")


def exiting(session: Session) -> Iterable[OutputEvent]:
    raise SystemExit(3)


def wrong(session: Session) -> Iterable[Any]:
    return [OutputEvent("t", b"x"), "text"]


class State:
    """The part of Spark's GroupState that the worker uses."""

    def __init__(self) -> None:
        self.value: tuple[bytes] | None = None

    @property
    def exists(self) -> bool:
        return self.value is not None

    @property
    def get(self) -> tuple[bytes]:
        assert self.value is not None
        return self.value

    def update(self, value: tuple[bytes]) -> None:
        self.value = value

    def remove(self) -> None:
        self.value = None


def run(
    function: str,
    state: State,
    events: list[tuple[int, str, str]],
    *,
    stop: bool = False,
    type_in_header: bool = False,
) -> list[dict[str, Any]]:
    """Give (offset, key, type) to bucket 7; return the rows that come out."""
    assembly = AssemblySettings(key_path=None)
    headers = {}
    if type_in_header:
        assembly = replace(assembly, type_path=None)
        headers["type"] = pa.array([kind.encode() for _, _, kind in events], pa.binary())
    worker = BucketWorker(assembly, ("in",), f"{HERE}:{function}", stop, 1_000)
    batch = pa.record_batch(
        headers
        | {
            "bucket": pa.array([7] * len(events), pa.int32()),
            "source": pa.array([0] * len(events), pa.int32()),
            "offset": pa.array([offset for offset, _, _ in events], pa.int64()),
            "ts": pa.array([1_000 + offset for offset, _, _ in events], pa.int64()),
            "key": pa.array([key.encode() for _, key, _ in events], pa.binary()),
            "value": pa.array(
                [orjson.dumps({"event_type": kind, "offset": offset}) for offset, _, kind in events],
                pa.binary(),
            ),
        }
    )
    frames = [packed.to_pandas() for packed in pack([batch])]
    result: list[pd.DataFrame] = list(worker((7,), frames, state))  # type: ignore[arg-type]
    return [row for frame in result for row in pa.Table.from_pandas(frame).to_pylist()]


WHOLE = [(0, "a", "start_event"), (1, "a", "entry_event"), (2, "a", "end_event")]


def test_a_session_is_assembled_over_two_calls_and_its_state_removed_at_the_end() -> None:
    state = State()
    (summary,) = run("good", state, WHOLE[:2])
    assert summary["kind"] == rows.SUMMARY
    assert state.exists
    session, _ = run("good", state, WHOLE[2:])
    assert (session["kind"], session["session_key"], session["first_offset"], session["closing_offset"]) == (
        rows.SESSION,
        "a",
        0,
        2,
    )
    assert b"a:3:in" in session["values"]
    assert not state.exists


@pytest.mark.parametrize(
    ("function", "detail"),
    [
        ("raising", "ValueError: no \\ud800 luck\\0"),
        ("exiting", "SystemExit: 3"),
        ("wrong", "output 1 is str, not OutputEvent"),
    ],
)
def test_a_transform_that_fails_makes_a_dead_letter_with_the_events(function: str, detail: str) -> None:
    letter, _ = run(function, State(), WHOLE)
    assert (letter["kind"], letter["reason"], letter["events"], letter["kept"]) == (
        rows.LETTER,
        "transform_failed",
        3,
        3,
    )
    assert detail in letter["detail"]
    assert "Traceback" in letter["detail"]


@pytest.mark.parametrize("in_header", [True, False])
def test_letters_keep_the_types_that_only_a_header_told(in_header: bool) -> None:
    events = [*WHOLE, (3, "b", "entry_event"), (4, "c", "odd\0")]
    *letters, _ = run("raising", State(), events, type_in_header=in_header)
    found = {letter["reason"]: letter["headers"] for letter in letters}
    expected: dict[str, list[bytes] | None] = {
        "transform_failed": [b"start_event", b"entry_event", b"end_event"],
        "no_start": [b"entry_event"],
        "malformed": [b"odd\\0"],
    }
    if not in_header:  # the odd one is escaped in JSON, an unknown type all the same
        expected = dict.fromkeys(expected)
    assert found == {
        reason: None if types is None else b"".join(map(nullable, types))
        for reason, types in expected.items()
    }


def test_a_transform_that_fails_stops_the_job_where_asked() -> None:
    with pytest.raises(TransformStoppedError, match="session 'a'"):
        run("raising", State(), WHOLE, stop=True)


def test_a_transform_that_cannot_be_imported_fails_the_batch_not_its_sessions() -> None:
    with pytest.raises(SettingsError, match="has no function 'absent'"):
        run("absent", State(), WHOLE)
