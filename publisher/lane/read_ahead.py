"""Reads a lane's next chunk, either while Kafka commits the previous one or when it is needed."""

import psycopg
import structlog

from publisher.delivery.large_row_turns import LargeRowTurns
from publisher.delivery.sender import Connection
from publisher.lane.reader import ANY_SIZE, LaneChunk, LaneReader, PendingChunk
from publisher.protocol.chunk_limits import ChunkLimits
from publisher.protocol.history_check import DeliveryPosition
from publisher.protocol.stop_reasons import StoppedError
from service.lifecycle.tracebacks import release_frames

_log = structlog.get_logger()

# How long a lane waits for its turn with a large row before it reports that it lives, and waits again.
_LARGE_ROW_WAIT_S = 0.5


class ReadAhead:
    """The chunks of one lane. Not thread-safe."""

    def __init__(self, reader: LaneReader, large_row_turns: LargeRowTurns, most_row_bytes: int) -> None:
        """`large_row_turns`: the process's turns for lanes with rows of more than `most_row_bytes`."""
        self._reader = reader
        self._large_row_turns = large_row_turns
        self._most_row_bytes = most_row_bytes
        self.has_large_row = False
        """Whether this lane has the turn, and has read a large row."""
        self._asked: PendingChunk | None = None
        self._kept: LaneChunk | None = None

    def next(self, connection: Connection, position: DeliveryPosition, limits: ChunkLimits) -> LaneChunk:
        """Return the chunk after a position: the one that was read ahead, or a new one. Raises StoppedError, psycopg.Error."""
        chunk, self._kept = self._kept, None
        if chunk is None:
            chunk = self._reader.read(connection, position, limits, self._most_row_bytes)
        if chunk.is_large and self._large_row_turns.take(self, _LARGE_ROW_WAIT_S):
            self.has_large_row = True
            chunk = self._reader.read(connection, position, limits, ANY_SIZE)
        return chunk

    def ask(self, connection: Connection, position: DeliveryPosition, limits: ChunkLimits) -> None:
        """Send the statements for the chunk after `position`, which the lane will have reached once Kafka has committed.

        The chunk is kept only if the ledger still has both ends of it when the delivery is recorded, after Kafka's commit and before the
        next transaction begins (`record` in sql/deliveries.sql, called by outbox/deliveries.py). Because commit ids are random, the chunk
        then equals one that is read at that moment, even if a database was restored in between. Rows that the ledger gained meanwhile do
        not belong to the chunk: batches are only ever appended, and an epoch begins after every batch that exists by then.
        """
        try:
            self._asked = self._reader.ask(connection, position, limits, self._most_row_bytes)
        except psycopg.Error as error:
            # Kafka's commit continues, and recording it will fail. Raising here would prevent the commit: the transaction would stay open
            # until the broker ends it, and hold up every reader of its topics, because the lane opens again only when Postgres answers.
            connection.close()
            release_frames(error)
            _log.debug("not_read_ahead", reason=str(error).strip())

    def answer(self) -> LaneChunk | None:
        """Return the chunk that was asked for, None if none was. Raises psycopg.Error."""
        asked, self._asked = self._asked, None
        if asked is None:
            return None
        try:
            return self._reader.take(asked)
        except StoppedError:
            # The committed transaction is recorded first. The next read will find the same reason and raise it.
            return None

    def keep(self, chunk: LaneChunk | None) -> None:
        """Use this chunk as the next one."""
        self._kept = chunk

    def discard(self) -> None:
        """Drop the chunk that was read ahead."""
        self._kept = None
        if self._asked is not None:
            # The connection takes no other query until the answer is read.
            self._asked.connection.close()
            self._asked = None

    def end_large_row(self) -> None:
        """Give the turn for large rows back, or leave the queue for it."""
        self.has_large_row = False
        self._large_row_turns.end(self)
