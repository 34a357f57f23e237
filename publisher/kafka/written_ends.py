"""The least ends that this process' own writes give its topics: an end below them is an old leader's answer.

A leader that is cut off from its cluster, and still reached by a client, answers with the end that it knows. A lane that believed it would
not see its own last transaction, and send it again. What Kafka confirmed with acks=all is in every later end, whatever became of its
transaction, so such an answer is refused, and asked for again.
"""

import threading
from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException


class WrittenEnds:
    """Of one process. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ids: dict[str, str] = {}
        self._ends: dict[tuple[str, int], int] = {}

    def identify(self, topic: str, topic_id: str) -> None:
        """Take the id that the topic has now: one that was made again has other offsets."""
        with self._lock:
            if self._ids.get(topic) != topic_id:
                self._ids[topic] = topic_id
                self._ends = {place: end for place, end in self._ends.items() if place[0] != topic}

    def take(self, newest: Mapping[tuple[str, int], int]) -> None:
        """Take the greatest offsets that Kafka has confirmed to a transaction, whatever became of it."""
        with self._lock:
            for place, offset in newest.items():
                self._ends[place] = max(offset + 1, self._ends.get(place, 0))

    def check(self, topic: str, ends: Mapping[int, int]) -> None:
        """Raise KafkaException, to be retried, for an end that is older than what this process wrote."""
        with self._lock:
            older = [
                (partition, end, self._ends[topic, partition])
                for partition, end in ends.items()
                if end < self._ends.get((topic, partition), 0)
            ]
        if older:
            partition, end, written = older[0]
            text = (
                f"{topic}[{partition}] ends at {end}, says its leader, but this process has written up to {written}: an old leader answers "
                "that is cut off from its cluster. Where the cluster did lose what it had confirmed, restart this process"
            )
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, text))
