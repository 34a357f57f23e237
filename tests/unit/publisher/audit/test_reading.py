"""Where an audit begins to read the topics, and that nothing in them ends it but Kafka itself."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from publisher.audit.found import FoundReader
from publisher.audit.kafka import _begins
from publisher.audit.scope import Resume, Scope
from publisher.audit.topics import Topic
from publisher.outbox.cursor import Cursor

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def begins(recorded: int, resumes: list[Resume]) -> int:
    """Where partition 0 of a topic with the offsets 3 to 9 is read from, when the audited deliveries began at `recorded`."""
    answers = iter([SimpleNamespace(fetchone=lambda: (0,)), [("t", 0, recorded)]])
    connection: Any = SimpleNamespace(execute=lambda *_: next(answers))
    scope = Scope(1, 1, 5, 9, [(5, 9)], True, [(1, 1, 1)], {}, resumes)
    return _begins(connection, scope, [Topic("t", "id", 1)], [{"0": 3}], [{"0": 9}], set())[0]["0"]


def test_what_was_recorded_of_a_replaced_topic_does_not_say_where_to_read_the_new_one() -> None:
    before, after = (Resume(1, 0, 3, Cursor(batch), Cursor(batch), "", NOON) for batch in (4, 5))
    assert [begins(recorded, []) for recorded in (1, 7, 9, 10)] == [3, 7, 9, 3]
    assert begins(7, [before]) == 7
    assert begins(7, [after]) == 3


def test_ids_of_strangers_are_read_whatever_bytes_they_have() -> None:
    reader: Any = FoundReader.__new__(FoundReader)
    reader._places, reader._state = {}, SimpleNamespace(places=[])
    assert [reader._place(place) for place in (b"\xff/0", b"a/0", b"\xff/0")] == [0, 1, 0]
    assert reader._state.places == ["\\xff/0", "a/0"]


def test_a_failure_that_is_of_no_topic_is_told_as_kafkas() -> None:
    reader: Any = FoundReader.__new__(FoundReader)
    reader._topics, reader._state = {"t": 0}, None
    failure = SimpleNamespace(
        topic=lambda: None, partition=lambda: None, offset=lambda: None, error=lambda: KafkaError(KafkaError._ALL_BROKERS_DOWN)
    )  # fmt: skip
    with pytest.raises(KafkaException):
        reader._take(None, [failure])
