"""A start position becomes one offset for each partition, or names what does not fit, with its values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

import pytest

from service.errors import SettingsError
from spark_job.input.offsets import Offsets, TopicPartition
from spark_job.input.topics import InputTopics
from spark_job.recovery.findings import Input
from spark_job.recovery.starting_offsets import resolve

P0, P1 = TopicPartition("id", 0), TopicPartition("id", 1)
TOPICS = InputTopics({"in": "id"}, {"in": [0, 1]})
NOW = Input({"in": "id"}, Offsets({P0: 7, P1: 0}), Offsets({P0: 500, P1: 90}), {})
TEN = datetime(2026, 11, 24, 10, tzinfo=UTC)


@dataclass
class Kafka:
    """Answers as `input.topics.KafkaInput`; a record comes with each question."""

    ends: dict[TopicPartition, int] = field(default_factory=lambda: {P0: 490, P1: 90})
    first: Mapping[TopicPartition, int] = field(default_factory=dict)

    def bounds(self, _topics: InputTopics, where: Literal["earliest", "latest", "readable"]) -> Offsets:
        assert where == "readable"
        found = Offsets(self.ends)
        self.ends = {where: end + 1 for where, end in self.ends.items()}
        return found

    def first_at(self, _topics: InputTopics, at: datetime) -> Offsets:
        assert at == TEN
        self.ends = {where: end + 1 for where, end in self.ends.items()}
        return Offsets(self.first)


def test_words_are_bounds_of_the_input() -> None:
    assert resolve("earliest", Kafka(), TOPICS, NOW).start == NOW.earliest
    latest = resolve("latest", Kafka(), TOPICS, NOW)
    assert latest.start == {P0: 490, P1: 90}
    assert latest.text == "reads from latest on"


def test_a_time_is_each_partitions_first_record_of_then_or_later() -> None:
    found = resolve(TEN, Kafka(first={P0: 120, P1: 3}), TOPICS, NOW)
    assert found.start == {P0: 120, P1: 3}
    assert found.text == "reads from 2026-11-24T10:00:00Z on"


def test_a_partition_without_such_a_record_begins_at_its_end_of_before_the_question() -> None:
    """What came since may be of that time, and is read."""
    found = resolve(TEN, Kafka(first={P0: 120}), TOPICS, NOW)
    assert found.start == {P0: 120, P1: 90}
    assert found.text == "reads from 2026-11-24T10:00:00Z on; at its end where no record is as late: in/1"


def test_a_table_is_taken_as_it_is_up_to_the_bounds() -> None:
    assert resolve({"in": {0: 7, 1: 90}}, Kafka(), TOPICS, NOW).start == {P0: 7, P1: 90}


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"in": {0: 10}}, "in/1 is missing: Kafka holds offsets 0 to 90"),
        ({}, "in/0 is missing: Kafka holds offsets 7 to 500; in/1 is missing: Kafka holds offsets 0 to 90"),
        ({"in": {0: 6, 1: 0}}, "in/0 = 6: Kafka holds offsets 7 to 500"),
        ({"in": {0: 10, 1: 91}}, "in/1 = 91: Kafka holds offsets 0 to 90"),
        ({"in": {0: 10, 1: 0, 2: 5}}, "in/2 does not exist: the topic has 2 partitions"),
        ({"in": {0: 10, 1: 0}, "im": {0: 5}}, "'im' is not in [source] topics"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_with_the_values_and_the_ways_out(
    table: dict[str, dict[int, int]], says: str
) -> None:
    with pytest.raises(SettingsError) as refused:
        resolve(table, Kafka(), TOPICS, NOW)
    text = str(refused.value)
    assert f"does not fit the input: {says}. Name an offset of each partition" in text
    assert text.endswith("Nothing was written")


def test_of_many_partitions_some_are_named() -> None:
    topics = InputTopics({"in": "id"}, {"in": list(range(300))})
    with pytest.raises(SettingsError, match="and 290 more"):
        resolve({}, Kafka(), topics, NOW)
