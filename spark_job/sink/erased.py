"""Keep erased sessions out of the outbox: a reissue reads their events again, if Kafka has them, and stores nothing of them.

The erased keys are read within the batch's transaction, under the writer lock, which an erasure takes too. No other generation reads an
offset a second time, so none needs the erased keys.
"""

from dataclasses import replace
from hashlib import sha256
from uuid import UUID

from psycopg.types.json import Jsonb

from db.connection import Connection
from db.statements import queries
from spark_job.input.offsets import TopicPartition
from spark_job.ledger.position import InputPosition
from spark_job.sink.batch_result import BatchResult

_ERASED = queries("spark_job", "erased")
_LEDGER = queries("spark_job", "ledger")


class ErasedKeys:
    """For the hash of each erased session key, by partition: the offset through which the key's events are erased."""

    def __init__(self, outbox_uuid: UUID, through: dict[tuple[bytes, TopicPartition], int]) -> None:
        self._salt = outbox_uuid.bytes
        self._through = through

    @classmethod
    def read(cls, connection: Connection, at: InputPosition) -> "ErasedKeys | None":
        """Return the erased keys whose events the batches after a position may read; None if there are none."""
        if not at.generation.revision:
            return None
        rows = connection.execute(_ERASED["reaching"], {"safe": Jsonb(at.safe_offsets.to_json())}).fetchall()
        if not rows:
            return None
        found = connection.execute(_LEDGER["outbox_uuid"]).fetchone()
        assert found is not None, "outbox.identity has its one row from the migration on"
        return cls(
            found[0],
            {
                (bytes(key_hash), TopicPartition(topic_id, partition)): through
                for key_hash, topic_id, partition, through in rows
            },
        )

    def left_out(self, result: BatchResult) -> BatchResult:
        """Return the result without the sessions and letters that begin among erased events of their key."""
        return replace(
            result,
            sessions=[each for each in result.sessions if not self._has(each.key, each.where, each.start)],
            letters=[
                each
                for each in result.letters
                if each.key is None or not self._has(each.key.encode(), each.where, each.first_offset)
            ],
        )

    def _has(self, key: bytes, where: TopicPartition, first: int) -> bool:
        return first <= self._through.get((sha256(self._salt + key).digest(), where), -1)
