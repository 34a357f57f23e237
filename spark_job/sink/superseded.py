"""Letters that a later output covers: resolved in the transaction that stores the output.

A reissue computes again what an earlier generation has judged. Every other generation finds its horizon empty, and makes no further query.
"""

from collections.abc import Iterable, Mapping, Sequence

from db.statements import queries
from spark_job.input.offsets import TopicPartition
from spark_job.ledger.generations import Connection
from spark_job.ledger.position import InputPosition
from spark_job.sink.batch import SessionRow

_LETTERS = queries("spark_job", "letters")


class Horizon:
    """Per partition, the greatest first offset of the letters that a session of this generation can still cover."""

    def __init__(self, first_offsets: Mapping[TopicPartition, int]) -> None:
        self._first_offsets = dict(first_offsets)

    @classmethod
    def read(cls, connection: Connection, at: InputPosition) -> "Horizon":
        """Read it once, at a start: no letter of an earlier generation is opened later.

        A session that covers a letter starts at or before the letter's first event, and no session that closes from now on starts below
        the position's safe offsets.
        """
        safe = at.safe_offsets
        parameters = {
            "generation": at.generation.number,
            "topic_ids": [where.topic_id for where in safe],
            "partitions": [where.partition for where in safe],
            "safe": list(safe.values()),
        }
        rows = connection.execute(_LETTERS["horizon"], parameters).fetchall()
        return cls({TopicPartition(topic_id, partition): first for topic_id, partition, first in rows})

    def __bool__(self) -> bool:
        return bool(self._first_offsets)

    def keys(self, sessions: Iterable[SessionRow]) -> list[str]:
        """Return the keys of the sessions that may cover a letter."""
        if not self._first_offsets:
            return []
        reach = self._first_offsets
        return list({s.key.decode(): None for s in sessions if s.start <= reach.get(s.where, -1)})


def resolve(connection: Connection, keys: Sequence[str], first_batch: int, last_batch: int) -> int:
    """Resolve the open letters that these keys' rows of the batches cover; return how many. Call after the rows, under the writer lock."""
    if not keys:
        return 0
    parameters = {"keys": list(keys), "first_batch": first_batch, "last_batch": last_batch}
    # Planned for these batches: a generic plan would lock every partition of session_output.
    return connection.execute(_LETTERS["resolve_covered"], parameters, prepare=False).rowcount
