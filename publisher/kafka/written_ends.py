"""Recognises an old leader's answer about the end of a partition, from the offsets that this process has written.

A leader that is cut off from its cluster, but not from this client, answers with the last end that it knows. A lane that trusted the answer
would miss its own last transaction and send it again. Only a write proves the end, because an old leader confirms none (acks=all).
- Every end must be at or beyond the offsets that this process has written, committed or aborted. A smaller end is refused.
- The next record must be written at the end that was read. The first progress record of a tenure shows whether it was (`last_read`;
  transaction.py, `_check_end`).
"""

import threading
from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException


class WrittenEnds:
    """The ends of the partitions that one process has written to. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ids: dict[str, str] = {}
        self._ends: dict[tuple[str, int], int] = {}
        self._read: dict[tuple[str, int], int] = {}

    def identify(self, topic: str, topic_id: str) -> None:
        """Note the topic's present id. If it has changed, the topic was created again, and its known ends are forgotten."""
        with self._lock:
            if self._ids.setdefault(topic, topic_id) != topic_id:
                self._ids[topic] = topic_id
                self._ends = {
                    partition: end for partition, end in self._ends.items() if partition[0] != topic
                }

    def take(self, newest: Mapping[tuple[str, int], int]) -> None:
        """Note the greatest offsets that Kafka has confirmed to a transaction, whether it was committed or not."""
        with self._lock:
            for partition, offset in newest.items():
                self._ends[partition] = max(offset + 1, self._ends.get(partition, 0))

    def last_read(self, topic: str, partition: int) -> int | None:
        """Return the end of a partition that was read last, None if none was read."""
        with self._lock:
            return self._read.get((topic, partition))

    def check(self, topic: str, ends: Mapping[int, int]) -> None:
        """Note and check ends that were read. Raises KafkaException, to be retried, for an end below the offsets that this process
        wrote."""
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
                f"the leader of {topic}[{partition}] says that it ends at {end}, but this process has written up to {written}: the answer "
                "is an old leader's, cut off from its cluster. If the cluster has lost what it had confirmed, restart this process"
            )
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, text))
