"""An end below what the process itself has written is not believed, unless the topic was made again."""

import pytest
from confluent_kafka import KafkaException

from publisher.kafka.written_ends import WrittenEnds


def test_an_end_below_what_was_written_is_refused_and_names_both() -> None:
    written = WrittenEnds()
    written.identify("progress", "A")
    written.take({("progress", 0): 9, ("out", 1): 4})
    written.take({("progress", 0): 7})
    written.check("progress", {0: 10, 1: 0})
    with pytest.raises(
        KafkaException, match=r"progress\[0\] says that it ends at 9, .* has written up to 10"
    ) as raised:
        written.check("progress", {1: 3, 0: 9})
    assert raised.value.args[0].code() == -185  # _TIMED_OUT: tried again
    with pytest.raises(KafkaException):
        written.check("out", {1: 4})
    with pytest.raises(KafkaException):  # no end at all, of a partition that was never written
        written.check("out", {7: -1001})


def test_a_topic_that_was_made_again_begins_anew() -> None:
    written = WrittenEnds()
    # The process has made the topic itself, and learns its id later.
    written.take({("progress", 0): 9, ("out", 0): 9})
    written.identify("progress", "A")
    with pytest.raises(KafkaException):
        written.check("progress", {0: 0})
    written.identify("progress", "B")
    written.check("progress", {0: 0})
    with pytest.raises(KafkaException):
        written.check("out", {0: 0})


def test_the_end_that_was_read_last_is_kept() -> None:
    written = WrittenEnds()
    assert written.last_read("progress", 0) is None
    written.check("progress", {0: 5, 1: 7})
    assert written.last_read("progress", 0) == 5
