"""Keep erased sessions out of the outbox: a reissue reads their events again, if Kafka has them, and stores nothing of them.

The erased keys are read within the batch's transaction, under the writer lock, which an erasure takes too. No other generation reads an
offset a second time, so none needs the erased keys.
"""

from dataclasses import replace
from hashlib import sha256
from uuid import UUID

from db.connection import Connection
from db.statements import queries
from spark_job.input.offsets import TopicPartition
from spark_job.ledger.position import InputPosition
from spark_job.sink.batch_result import BatchResult, Letter

_ERASED = queries("spark_job", "erased")
_LEDGER = queries("spark_job", "ledger")


class ErasedKeys:
    """The session keys of which a batch may read erased events."""

    def __init__(self, connection: Connection, outbox_uuid: UUID) -> None:
        self._connection = connection
        self._salt = outbox_uuid.bytes

    @classmethod
    def read(cls, connection: Connection, at: InputPosition) -> "ErasedKeys | None":
        """Return the erased keys; None if the batches after a position read no erased event."""
        if not at.generation.revision:
            return None
        safe = at.safe_arrays()
        parameters = safe | {"inputs": [*{*at.generation.topics, *safe["topic_ids"]}]}
        if connection.execute(_ERASED["reaching"], parameters).fetchone() == (False,):
            return None
        found = connection.execute(_LEDGER["outbox_uuid"]).fetchone()
        assert found is not None, "outbox.identity has its one row from the migration on"
        return cls(connection, found[0])

    def left_out(self, result: BatchResult) -> BatchResult:
        """Return the result without the sessions and letters that begin among erased events of their key, and without erased letters that
        have no key."""
        through = self._through(
            {(each.key, each.where) for each in result.sessions}
            | {(_key_of(each), each.where) for each in result.letters}
        )
        return replace(
            result,
            sessions=[
                each for each in result.sessions if each.start > through.get((each.key, each.where), -1)
            ],
            letters=[
                each
                for each in result.letters
                if each.first_offset > through.get((_key_of(each), each.where), -1)
            ],
        )

    def _through(self, places: set[tuple[bytes, TopicPartition]]) -> dict[tuple[bytes, TopicPartition], int]:
        """Return the offset of a key's last erased event in a partition, for the places that have one."""
        asked = list(places)
        parameters = {
            "key_hashes": [sha256(self._salt + key).digest() for key, _ in asked],
            "topic_ids": [where.topic_id for _, where in asked],
            "partitions": [where.partition for _, where in asked],
        }
        return {
            asked[place]: through
            for place, through in self._connection.execute(_ERASED["of_places"], parameters)
        }


def _key_of(letter: Letter) -> bytes:
    """Return a letter's session key; if it has none, what `outbox.record_hash` hashes. No session key has a zero byte."""
    where = letter.where
    record = f"\0{where.topic_id}/{where.partition}/{letter.first_offset}"
    return (record if letter.key is None else letter.key).encode()
