"""A replay's rows as the records that go out. Pure."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from publisher.records import ExtraHeaders, Record, Row, records, value_bytes
from publisher.refusals import Refusal, TopicLimits, record_refusal

# Everything of a plain record but its values: batch and record overhead, a session key of 1 kB, the headers of ours.
_PLAIN_OVERHEAD = 4_096


class Outgoing(NamedTuple):
    """How rows become records. `topics` None: the outputs of every topic; `target_topic` None: each to its own."""

    replay_uuid: UUID
    topics: frozenset[str] | None
    target_topic: str | None
    headers: ExtraHeaders

    def records(self, row: Row) -> list[Record]:
        """Return what goes out of a row, in order. Raises ValueError where the row cannot be read.

        Filtered after numbering: an output's outbox-id does not depend on which others go out.
        """
        mark = ("outbox-replay", str(self.replay_uuid).encode())
        return [
            Record(self.target_topic or topic, value, key, partition, timestamp_ms, [*headers, mark])
            for topic, value, key, partition, timestamp_ms, headers in records(row, self.headers)
            if self.topics is None or topic in self.topics
        ]

    def destinations(self, row: Row) -> set[str]:
        """Return the topics that a row's records go to."""
        wanted = {topic for topic in row.topics if self.topics is None or topic in self.topics}
        return {self.target_topic} if wanted and self.target_topic is not None else wanted


def refusal_of(
    row: Row, sent: Sequence[Record], limits: Mapping[str, TopicLimits], client_max_bytes: int
) -> Refusal | None:
    """Return why the target would refuse a row for itself, None where it would not."""
    if not sent:
        return None
    plain = row.keys is None and row.headers is None and row.partitions is None and row.timestamps_ms is None
    bounds = [limit.max_bytes for limit in limits.values() if limit.max_bytes is not None]
    if plain and value_bytes(row) + _PLAIN_OVERHEAD <= min([client_max_bytes, *bounds]):
        return None
    for index, record in enumerate(sent):
        found = record_refusal(index, record, limits[record.topic], client_max_bytes)
        if found is not None:
            return found
    return None
