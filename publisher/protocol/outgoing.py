"""Decides which outputs of a row are sent, to which topics, and as which records. Pure."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple
from uuid import UUID

from publisher.protocol.records import (
    NO_EXTRAS,
    DeliveryReport,
    ExtraHeaders,
    Header,
    OutputRecord,
    Produce,
    Row,
    is_plain,
    produce_plain,
    records,
)
from publisher.protocol.replay_targets import ReplayTargets


class Outgoing(NamedTuple):
    """How rows become records. A lane sends all outputs unchanged. A replay marks them, and may leave some out or send them to other
    topics.

    `replay_uuid`: the mark of every record, None for a lane. `topics`: send only the outputs for these topics, None for all.
    """

    replay_uuid: UUID | None = None
    topics: frozenset[str] | None = None
    targets: ReplayTargets = ReplayTargets()
    headers: ExtraHeaders = NO_EXTRAS

    def records(self, row: Row) -> Iterator[OutputRecord]:
        """Yield the records of a row that are sent, in order. Raises ValueError if the row cannot be read.

        Outputs are numbered before any is left out, so an output's outbox-id does not depend on which others are sent.
        """
        marks = self.marks()
        for topic, value, key, partition, timestamp_ms, headers in records(row, self.headers):
            if self.topics is None or topic in self.topics:
                yield OutputRecord(
                    self.targets.of(topic), value, key, partition, timestamp_ms, [*headers, *marks]
                )

    def destinations(self, rows: Iterable[Row]) -> set[str]:
        """Return the topics that the rows' records go to."""
        # Rows that were read together share their lists (publisher/outbox/loading.py).
        lists = {id(row.topics): row.topics for row in rows}.values()
        wanted = {
            topic for topics in lists for topic in topics if self.topics is None or topic in self.topics
        }
        return self.targets.of_all(wanted)

    def events(self, row: Row) -> int:
        """Return how many records of a row are sent."""
        if self.topics is None:
            return len(row.topics)
        return sum([topic in self.topics for topic in row.topics])

    def is_plain(self, row: Row) -> bool:
        """Whether `produce_plain` may send the row."""
        return self.topics is None and is_plain(row, self.headers)

    def produce_plain(
        self, produce: Produce, row: Row, start: int, reached: list[int], report: DeliveryReport
    ) -> None:
        """Send the records of a plain row, as records.produce_plain does."""
        topic = self.targets.of(row.topics[0])
        produce_plain(produce, row, topic, self.marks(), start, reached, report)

    def marks(self) -> list[Header]:
        """Return the headers that every record gets in addition to its own."""
        return [] if self.replay_uuid is None else [("outbox-replay", str(self.replay_uuid).encode())]
