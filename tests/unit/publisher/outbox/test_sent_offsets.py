"""What the column `kafka_offsets` of a delivery may hold, and what is made of everything else."""

import json
from typing import Any

import pytest

from publisher.outbox.sent_offsets import (
    MalformedOffsetsError,
    read_sent_offsets,
    read_topic_offsets,
    shown_sent_offsets,
    shown_topic_offsets,
)
from publisher.trace.outputs import Output

MALFORMED = [
    "[]",
    "5",
    '"a text"',
    "true",
    "{}",
    '{"0": null}',
    '{"0": 5}',
    '{"0": []}',
    '{"0": [1]}',
    '{"0": [1, 2, 3]}',
    '{"0": [2, 1]}',
    '{"0": [-1, 1]}',
    '{"0": [1.0, 2]}',
    '{"0": [true, 2]}',
    '{"0": ["1", 2]}',
    '{"0": [1, 9223372036854775808]}',
    '{"0": {"0": 1}}',
    '{"-1": [1, 2]}',
    '{"00": [1, 2]}',
    '{"x": [1, 2]}',
    '{"\u00b2": [1, 2]}',
    '{"4294967296": [1, 2]}',
    '{"0": [1, ' + "9" * 5_000 + "]}",
    '{"a": ' * 5_000 + "1" + "}" * 5_000,
    "[" * 100_000,
]


def output(offsets: Any) -> Output:
    return Output(7, "i/0/1/0", 0, "t", "delivered", None, offsets, "k", 3, 1, 17)


@pytest.mark.parametrize("text", MALFORMED, ids=lambda text: text[:40])
def test_what_no_publisher_writes_stays_a_text(text: str) -> None:
    found = read_topic_offsets(text)
    assert found == text[:200]
    assert shown_topic_offsets(found) == f"malformed: {found}"
    of_all = json.dumps({"good": {"0": [1, 2]}, "forged": 0}).replace("0}", text + "}")
    assert read_sent_offsets(of_all) == of_all[:200]
    assert shown_sent_offsets(of_all[:200]).startswith("malformed: ")
    with pytest.raises(
        MalformedOffsetsError, match=r"epoch 1, lane 3, delivery 17: .* --scan` reads the whole topics"
    ):
        output(found).ranges()


def test_what_a_publisher_writes_is_read() -> None:
    assert read_topic_offsets('{"0": [1, 1], "12": [0, 9223372036854775807]}') == {
        "0": [1, 1],
        "12": [0, 2**63 - 1],
    }
    assert read_sent_offsets('{"t": {"0": [5, 9]}, "u": {"3": [0, 0]}}') == {
        "t": {"0": [5, 9]},
        "u": {"3": [0, 0]},
    }
    assert read_sent_offsets("{}") == {}
    assert (
        shown_sent_offsets({"t": {"0": [5, 9], "1": [2, 2]}, "u": {"3": [0, 0]}})
        == "t: 0/5–9, 1/2–2; u: 3/0–0"
    )
    assert output({"0": [5, 9]}).ranges() == {"0": [5, 9]}


def test_what_is_not_known_is_none() -> None:
    assert read_topic_offsets(None) is None
    assert read_sent_offsets(None) is None
    assert (shown_topic_offsets(None), shown_sent_offsets(None)) == ("", "")
    assert output(None).ranges() == {}
