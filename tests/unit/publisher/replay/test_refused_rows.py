"""What a replay does about rows that its target refuses, and about topics that are no longer those that it has written to."""

from collections.abc import Iterable
from hashlib import sha256
from typing import Any

import pytest
from structlog.testing import capture_logs

from publisher.kafka.topics import OutputTopic
from publisher.protocol.records import RowKey
from publisher.protocol.refusals import Refusal
from publisher.protocol.stop_reasons import StoppedError, TopicMissingError
from publisher.replay.refused_rows import RefusedRows
from publisher.replay.target import WrittenTopics

REFUSED = Refusal("too_large", "output 0 is 3 MB")


def test_a_refused_row_stops_the_replay_unless_such_rows_are_skipped() -> None:
    with (
        capture_logs() as logged,
        pytest.raises(StoppedError, match=r'row_refused: .*batch 4, session key "ann"'),
    ):
        RefusedRows(7, skip_refused=False).exclude(RowKey(4, "ann"), REFUSED)
    assert logged == []
    with capture_logs() as logged:
        RefusedRows(7, skip_refused=True).exclude(RowKey(4, "ann"), REFUSED)
    (line,) = logged
    assert (line["event"], line["replay"], line["batch_id"], line["reason"]) == (
        "left_out",
        7,
        4,
        "too_large",
    )
    assert line["session_key_sha256"] == sha256(b"ann").hexdigest()
    assert "ann" not in str(line)


@pytest.mark.parametrize("skip_refused", [False, True])
def test_rows_for_a_missing_topic_are_never_skipped(skip_refused: bool) -> None:
    error = TopicMissingError("gone", "output topic 'gone' does not exist")
    with pytest.raises(TopicMissingError):
        RefusedRows(7, skip_refused=skip_refused).topic_missing(error, 3)


class KafkaTopics:
    """Topics with these ids."""

    def __init__(self, **ids: str) -> None:
        self.ids = ids

    def describe(self, names: Iterable[str]) -> dict[str, OutputTopic]:
        return {name: OutputTopic(self.ids[name], 1, 1 << 20) for name in names}


def test_a_topic_that_was_written_earlier_is_checked_with_every_chunk_and_new_ones_are_remembered() -> None:
    kafka: Any = KafkaTopics(a="a1", b="b1")
    written = WrittenTopics(kafka, 7, {"a": "a1"})
    written.check({"b": "b1"})
    assert written.ids == {"a": "a1", "b": "b1"}
    kafka.ids["a"] = "a2"
    with pytest.raises(StoppedError, match=r"target_topic_replaced: topic 'a' had the id a1, now it is a2"):
        written.check({"b": "b1"})
    assert written.ids == {"a": "a1", "b": "b1"}
