"""How much of the sample a topic has already, so that a loader that was cut off continues instead of repeating it."""

from collections import Counter

from examples.clickstream.events import Record
from examples.clickstream.reading import ReadError, end_offsets, read_topic
from service.settings import KafkaSettings


def left_to_play(kafka: KafkaSettings, topic: str, records: list[Record]) -> list[Record]:
    """The records that the topic does not have yet, in their order.

    A session's records are in one partition, and the idempotent producer leaves no gap there: the topic has the
    first records of each session, so their number tells how far it got. Raises ReadError where the topic cannot be read, or
    has lost its beginning before the end was written.
    """
    written = sum(end_offsets(kafka, topic).values())
    if written >= len(records):
        return []
    there = Counter(record.key for record in read_topic(kafka, topic))
    if there.total() < written:
        raise ReadError(
            f"topic {topic!r} was given {written} of {len(records)} records and has deleted some of them, "
            "so nobody can tell which are missing: delete the topic and play the whole sample"
        )
    left = []
    for record in records:
        if there[record[0]]:
            there[record[0]] -= 1
        else:
            left.append(record)
    return left
