"""Notices at once that an output topic was deleted and made again: its offsets begin anew."""

from typing import Any

import psycopg

from publisher.delivery.transaction import Tally
from publisher.kafka.topics import Topics
from publisher.outbox.identity import bind_topics


class OffsetsWatch:
    """One lane's, for one tenure. Descriptions of topics are up to a minute old; delivery reports are of now."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._last: dict[tuple[str, str], int] = {}

    def check(self, connection: psycopg.Connection[Any], tally: Tally) -> None:
        """Take a committed transaction's offsets.

        Raises StoppedError when one is not beyond the last of before and the topic has another id now; KafkaException.
        """
        begun_anew = set()
        for topic, partitions in tally.as_json().items():
            for partition, (first, last) in partitions.items():
                if first <= self._last.get((topic, partition), -1):
                    begun_anew.add(topic)
                self._last[topic, partition] = last
        if begun_anew:
            self._topics.forget(begun_anew)
            bind_topics(connection, self._topics.ids(begun_anew))
