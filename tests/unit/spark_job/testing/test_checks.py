"""What differs between expected and stored outputs is shown where it is."""

import pytest

from service.settings import Settings
from spark_job import OutputEvent, Session
from spark_job.testing import StoredOutput, assert_outputs, difference, run

GOT = [
    StoredOutput("out", b"k", b'{"a":1,"b":2}', session_key="k"),
    StoredOutput("out", b"l", b'{"a":3,"b":4}', session_key="l"),
]


def test_equal_outputs_have_no_difference() -> None:
    assert (
        difference([OutputEvent("out", {"a": 1, "b": 2}), OutputEvent("out", {"a": 3, "b": 4}, key="l")], GOT)
        == ""
    )
    assert difference(GOT, GOT) == ""
    assert difference([], []) == ""


def test_a_field_that_differs_is_named() -> None:
    text = difference([OutputEvent("out", {"a": 1, "b": 2}), OutputEvent("out", {"a": 3, "b": 5})], GOT)
    assert '-    "b": 5' in text.splitlines()
    assert '+    "b": 4' in text.splitlines()
    assert text.count("\n-") + text.count("\n+") == 3  # with the head's second line


def test_a_missing_output_does_not_move_the_ones_behind_it() -> None:
    text = difference([OutputEvent("out", {"a": 3, "b": 4})], GOT)
    assert [line for line in text.splitlines() if line.startswith("-")] == ["--- expected"]
    assert "+out  key k" in text.splitlines()


@pytest.mark.parametrize(
    ("expected", "shown"),
    [
        (OutputEvent("out", b'{"a": 1,"b":2}'), '-  {"a": 1,"b":2}'),
        (OutputEvent("out", None), "-  null"),
        (OutputEvent("out", b"\xff"), "-  hex ff"),
        (OutputEvent("out", b'{"a":1,"b":2}', "x"), "-out  key x"),
        (OutputEvent("out", b'{"a":1,"b":2}', headers=[("h", "v")]), "-  header h: v"),
        (OutputEvent("out", b'{"a":1,"b":2}', partition=0), "-  partition 0"),
    ],
)
def test_every_part_counts_also_bytes_that_mean_the_same(expected: OutputEvent, shown: str) -> None:
    assert shown in difference([expected], GOT[:1]).splitlines()


def fails(_: Session) -> list[OutputEvent]:
    """A transform with a mistake."""
    raise KeyError("cents")


RECORDS = [{"session_key": "k", "event_type": "start_event"}, {"session_key": "k", "event_type": "end_event"}]


def test_a_dead_letter_fails_a_test_that_expects_no_output() -> None:
    with pytest.raises(
        AssertionError, match=r"(?s)session 'k' becomes a dead letter transform_failed:.*KeyError: 'cents'"
    ):
        assert_outputs(run(fails, RECORDS, Settings()), [])
    with pytest.raises(AssertionError, match="record 0 becomes a dead letter no_start"):
        assert_outputs(run(fails, RECORDS[1:], Settings()), [])


def test_outputs_as_expected_pass() -> None:
    result = run(lambda _: [OutputEvent("out", {"a": 1})], RECORDS, Settings())
    assert_outputs(result, [OutputEvent("out", {"a": 1})])
    with pytest.raises(AssertionError, match='"a": 2'):
        assert_outputs(result, [OutputEvent("out", {"a": 2})])
