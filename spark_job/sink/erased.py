"""Keep erased sessions out of the outbox: a reissue reads their events again, if Kafka has them, and stores nothing of them.

The erased keys are read within the batch's transaction, under the writer lock, which an erasure takes too. No other generation reads an
offset a second time, so none needs the erased keys.
"""

from collections.abc import Iterable
from dataclasses import replace
from hashlib import sha256
from uuid import UUID

from db.connection import Connection
from db.statements import queries
from spark_job.input.offsets import TopicPartition
from spark_job.ledger.position import InputPosition
from spark_job.sink.batch_result import BatchResult

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
        safe = at.safe_offsets
        parameters = {
            "topic_ids": [where.topic_id for where in safe],
            "partitions": [where.partition for where in safe],
            "safe": list(safe.values()),
        }
        if connection.execute(_ERASED["reaching"], parameters).fetchone() == (False,):
            return None
        found = connection.execute(_LEDGER["outbox_uuid"]).fetchone()
        assert found is not None, "outbox.identity has its one row from the migration on"
        return cls(connection, found[0])

    def left_out(self, result: BatchResult) -> BatchResult:
        """Return the result without the sessions and letters that begin among erased events of their key."""
        letter_keys = (each.key.encode() for each in result.letters if each.key is not None)
        through = self._through({*(each.key for each in result.sessions), *letter_keys})
        return replace(
            result,
            sessions=[
                each for each in result.sessions if each.start > through.get((each.key, each.where), -1)
            ],
            letters=[
                each
                for each in result.letters
                if each.key is None or each.first_offset > through.get((each.key.encode(), each.where), -1)
            ],
        )

    def _through(self, keys: Iterable[bytes]) -> dict[tuple[bytes, TopicPartition], int]:
        """Return the offset of the last erased event of each erased key, by partition."""
        hashes = {sha256(self._salt + key).digest(): key for key in keys}
        rows = self._connection.execute(_ERASED["of_keys"], {"key_hashes": list(hashes)})
        return {
            (hashes[bytes(key_hash)], TopicPartition(topic_id, partition)): through
            for key_hash, topic_id, partition, through in rows
        }
