"""What a transform may return, and what is refused by name instead of being stored wrongly."""

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from contract.output_topics import OutputTopics
from spark_job import OutputEvent
from spark_job.outputs import pgcopy
from spark_job.outputs.encoding import InvalidOutputError, encode


@pytest.mark.guarantee(6)
def test_bytes_go_out_as_they_are_and_objects_are_encoded_once() -> None:
    encoded = encode([OutputEvent("t", b"\x00\xff"), OutputEvent("t", {"ä": 1}), OutputEvent("t", None)], 100)
    assert encoded.events == 3
    assert encoded.values == pgcopy.data(b"\x00\xff") + pgcopy.data('{"ä":1}'.encode()) + pgcopy.NULL


def test_defaults_take_no_room() -> None:
    encoded = encode([OutputEvent("t", b"")] * 2, 100)
    assert (encoded.keys, encoded.headers, encoded.partitions, encoded.timestamps) == (None, None, None, None)


def test_one_event_with_a_key_gives_the_others_null_elements() -> None:
    encoded = encode(
        [OutputEvent("t", b""), OutputEvent("t", b"", key="k"), OutputEvent("t", b"", key=b"\xff")], 100
    )
    assert encoded.keys == pgcopy.NULL + pgcopy.data(b"k") + pgcopy.data(b"\xff")


@pytest.mark.guarantee(6)
def test_headers_that_are_not_text_are_kept_exactly() -> None:
    headers: Any = [
        ("traceparent", "00-ab"),
        ("bin", b"\xff\x00"),
        ("nul", "\0"),
        ("none", None),
        ("ascii", b"x"),
    ]
    encoded = encode([OutputEvent("t", b"", headers=headers)], 1_000)
    expected = b'[["traceparent","00-ab"],["bin",{"base64":"/wA="}],["nul",{"base64":"AA=="}],["none",null],["ascii","x"]]'
    assert encoded.headers == pgcopy.jsonb(expected)


def test_timestamps_are_milliseconds() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
    encoded = encode([OutputEvent("t", b"", timestamp=moment)], 100)
    assert encoded.timestamps == pgcopy.int8(1_767_323_045_678)


@pytest.mark.guarantee(15, 53)
@pytest.mark.parametrize(
    ("event", "message"),
    [
        ("text", "output 0 is str, not OutputEvent"),
        (OutputEvent("no spaces", b""), "'no spaces' is not a topic name"),
        (OutputEvent("..", b""), "is not a topic name"),
        (OutputEvent("t" * 250, b""), "is not a topic name"),
        (OutputEvent("t", "text"), "its value is str, not bytes, a JSON object or array, or None"),  # type: ignore[arg-type]
        (OutputEvent("t", {"x": {1, 2}}), "cannot be written as JSON"),
        (OutputEvent("t", b"", key=3), "its key is int"),  # type: ignore[arg-type]
        (OutputEvent("t", b"", key="\ud800"), "its key is not valid Unicode"),
        (OutputEvent("t", b"", partition=-1), "partition -1"),
        (OutputEvent("t", b"", partition=True), "partition True"),
        (OutputEvent("t", b"", timestamp=datetime(2026, 1, 1)), "is not a datetime with a time zone"),  # noqa: DTZ001
        (OutputEvent("t", b"", timestamp=datetime(1960, 1, 1, tzinfo=UTC)), "is before 1970"),
        (OutputEvent("t", b"", headers=[("outbox-id", "x")]), "starts with outbox-"),
        (OutputEvent("t", b"", headers=[("a", 1)]), "header 'a' is int"),  # type: ignore[list-item]
        (OutputEvent("t", b"", headers=["ab"]), "is not (name, value)"),  # type: ignore[list-item]
        (OutputEvent("t", b"x" * 97), "more than [job] max_row_bytes = 100"),
    ],
)
def test_what_cannot_be_stored_or_sent_is_refused_by_name(event: Any, message: str) -> None:
    with pytest.raises(InvalidOutputError) as caught:
        encode([event], 100)
    assert message in str(caught.value)


def test_the_first_of_several_wrong_outputs_is_named() -> None:
    with pytest.raises(InvalidOutputError, match="output 1 is str, not OutputEvent"):
        encode([OutputEvent("t", b"x"), "one", 2, b"three", None], 1_000)  # type: ignore[list-item]


def test_an_output_for_a_progress_topic_or_one_that_the_settings_leave_out_is_refused() -> None:
    """With the publisher's rights, such a record would move a lane."""
    good, hostile = OutputEvent("orders", b"v"), OutputEvent(f"outbox-progress-{uuid4()}", b"v")
    with pytest.raises(InvalidOutputError, match=r"output 1: 'outbox-progress-.*' is the progress topic"):
        encode([good, hostile, hostile], 1 << 20)
    with pytest.raises(InvalidOutputError, match=r"output 0: .*is the progress topic"):
        encode([hostile, hostile], 1 << 20)
    allowed = OutputTopics(["orders"])
    assert encode([good], 1 << 20, allowed=allowed).events == 1
    # Its name has been seen, and encoded, by then.
    with pytest.raises(
        InvalidOutputError, match=r"output 1: topic 'other' is not in \[publisher\] output_topics"
    ):
        encode([good, OutputEvent("other", b"v")], 1 << 20, allowed=allowed)
