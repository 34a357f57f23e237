"""Where the first generation begins: `[source] starting_offsets` as a number for each partition.

The start resolves it and stores it with the generation, in one transaction, before it reads any event. A start that dies before its commit
leaves nothing, and the next start resolves the setting again. `findings.py` decides where partitions that are added later begin.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from service.commands.times import shown_time
from service.errors import SettingsError
from service.settings.job import StartingOffsets
from spark_job.input.offsets import Offsets, TopicPartition
from spark_job.input.topics import InputTopics
from spark_job.recovery.findings import Input

_SHOWN = 10


class Bounds(Protocol):
    """The requests to Kafka; `input.topics.KafkaInput` makes them."""

    def bounds(self, topics: InputTopics, where: Literal["earliest", "latest", "readable"]) -> Offsets:
        """See `KafkaInput.bounds`."""

    def first_at(self, topics: InputTopics, at: datetime) -> Offsets:
        """See `KafkaInput.first_at`."""


@dataclass(frozen=True)
class FirstPosition:
    """Where reading begins, and why, for people."""

    start: Offsets
    text: str


def resolve(setting: StartingOffsets, kafka: Bounds, topics: InputTopics, now: Input) -> FirstPosition:
    """Return where each partition begins. `now`: its bounds.

    Raises SettingsError for a table that does not fit the input, UnavailableError.
    """
    if isinstance(setting, datetime):
        start, late = at_time(kafka, topics, setting)
        return FirstPosition(start, f"reads from {shown_time(setting)} on{_without_record(late, now.names)}")
    if isinstance(setting, dict):
        return FirstPosition(
            _of_table(setting, topics, now), "reads from the offsets of [source] starting_offsets on"
        )
    start = now.earliest if setting == "earliest" else kafka.bounds(topics, "readable")
    return FirstPosition(start, f"reads from {setting} on")


def at_time(kafka: Bounds, topics: InputTopics, at: datetime) -> tuple[Offsets, list[TopicPartition]]:
    """Return each partition's first offset with the time `at` or later, else its end; and the partitions that have no such record.

    The ends are read first: a record that arrives between the two requests lies behind the end, so it will be read.
    """
    ends = kafka.bounds(topics, "readable")
    found = kafka.first_at(topics, at)
    return Offsets({**ends, **found}), [where for where in ends if where not in found]


def _without_record(late: Sequence[TopicPartition], names: Mapping[str, str]) -> str:
    if not late:
        return ""
    places = _listed([f"{names[where.topic_id]}/{where.partition}" for where in late])
    return f"; at its end where no record is as late: {places}"


def _of_table(table: Mapping[str, Mapping[int, int]], topics: InputTopics, now: Input) -> Offsets:
    wrong = [f"{topic!r} is not in [source] topics" for topic in table if topic not in topics.ids]
    found: dict[TopicPartition, int] = {}
    for topic, topic_id in topics.ids.items():
        given, partitions = table.get(topic, {}), topics.partitions[topic]
        wrong += [
            f"{topic}/{number} does not exist: the topic has {len(partitions)} partitions"
            for number in given
            if number not in partitions
        ]
        for number in partitions:
            where = TopicPartition(topic_id, number)
            first, end = now.earliest.at(where), now.latest.at(where)
            if number not in given:
                wrong.append(f"{topic}/{number} is missing: Kafka holds offsets {first} to {end}")
            elif not first <= given[number] <= end:
                wrong.append(f"{topic}/{number} = {given[number]}: Kafka holds offsets {first} to {end}")
            else:
                found[where] = given[number]
    if wrong:
        raise SettingsError(
            f"[source] starting_offsets does not fit the input: {_listed(wrong, '; ')}. Name an offset of each partition, or a time "
            '("2026-11-24T10:00:00Z"), "earliest" or "latest". Nothing was written'
        )
    return Offsets(found)


def _listed(texts: Sequence[str], separator: str = ", ") -> str:
    more = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return separator.join(texts[:_SHOWN]) + more
