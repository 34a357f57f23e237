"""Recognises an old leader's answer about the end of a partition, by the offsets that this process has written.

A leader that is cut off from its cluster, and still reached by a client, answers with the end that it knows. A lane that believed it would
not see its last transaction, and send it again. Only a write is proof of the end: an old leader confirms none (acks=all).
- What the process has written before is in every later end, whatever became of its transaction: an end below it is refused.
- What it writes next is where the end was that it has read: its first progress record of a tenure tells (`last_read`, transaction.py).
"""

import threading
from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException


class WrittenEnds:
    """The offsets that one process has written. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ids: dict[str, str] = {}
        self._ends: dict[tuple[str, int], int] = {}
        self._read: dict[tuple[str, int], int] = {}

    def identify(self, topic: str, topic_id: str) -> None:
        """Take the id that the topic has now: one that was made again has other offsets."""
        with self._lock:
            if self._ids.setdefault(topic, topic_id) != topic_id:
                self._ids[topic] = topic_id
                self._ends = {place: end for place, end in self._ends.items() if place[0] != topic}

    def take(self, newest: Mapping[tuple[str, int], int]) -> None:
        """Take the greatest offsets that Kafka has confirmed to a transaction, whatever became of it."""
        with self._lock:
            for place, offset in newest.items():
                self._ends[place] = max(offset + 1, self._ends.get(place, 0))

    def last_read(self, topic: str, partition: int) -> int | None:
        """Return the end of a partition that was read last, None where none was."""
        with self._lock:
            return self._read.get((topic, partition))

    def check(self, topic: str, ends: Mapping[int, int]) -> None:
        """Check ends that were read. Raises KafkaException, to be retried, for one below the offsets that this process wrote."""
        with self._lock:
            self._read |= {(topic, partition): end for partition, end in ends.items()}
            older = [
                (partition, end, written)
                for partition, end in ends.items()
                if end < (written := self._ends.get((topic, partition), 0))
            ]
        if older:
            partition, end, written = older[0]
            text = (
                f"{topic}[{partition}] ends at {end}, its leader says, but this process has written up to {written}: an old leader answers "
                "that is cut off from its cluster. If the cluster did lose what it had confirmed, restart this process"
            )
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, text))
