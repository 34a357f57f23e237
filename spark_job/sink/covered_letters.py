"""Resolve the dead letters that a later output covers, in the transaction that stores the output.

Only a reissue assembles the events of an earlier generation's letters again. In every other generation, `Horizon` has only letters that
begin after a session which was open at the start, and only a batch that closes such a session queries the letters. A letter that the
reissue itself writes resolves the older one (copy_rows.py, `insert_letters`).
"""

from collections.abc import Iterable, Mapping, Sequence

from db.connection import Connection
from db.statements import queries
from spark_job.input.offsets import TopicPartition
from spark_job.ledger.position import InputPosition
from spark_job.sink.batch_result import SessionRow

_LETTERS = queries("spark_job", "letters")


class Horizon:
    """Per partition, the greatest first offset of the letters that a session of this generation can still cover."""

    def __init__(self, first_offsets: Mapping[TopicPartition, int]) -> None:
        self._first_offsets = dict(first_offsets)

    @classmethod
    def read(cls, connection: Connection, at: InputPosition) -> "Horizon":
        """Read the offsets, once at each start: later, no letter of an earlier generation can appear.

        A session that covers a letter starts at or before the letter's first event, and no session that closes from now on starts below
        the position's safe offsets.
        """
        parameters = at.safe_arrays() | {"generation": at.generation.number}
        rows = connection.execute(_LETTERS["horizon"], parameters).fetchall()
        return cls({TopicPartition(topic_id, partition): first for topic_id, partition, first in rows})

    def keys(self, sessions: Iterable[SessionRow]) -> list[str]:
        """Return the keys of the sessions that may cover a letter."""
        if not self._first_offsets:
            return []
        first_offsets = self._first_offsets
        return list({s.key.decode(): None for s in sessions if s.start <= first_offsets.get(s.where, -1)})


def resolve(connection: Connection, keys: Sequence[str], batches: range) -> int:
    """Resolve the open letters that these keys' rows of the batches cover; return their number.

    Call after the rows were stored, under the writer lock.
    """
    if not keys:
        return 0
    parameters = {"keys": list(keys), "first_batch": batches[0], "last_batch": batches[-1]}
    # Planned for these batches: a generic plan would lock every partition of session_output.
    return connection.execute(_LETTERS["resolve_covered"], parameters, prepare=False).rowcount
