"""The current position (design §1): where the outbox is. Every rule that needs "where are we" asks here and nowhere else."""

from dataclasses import dataclass

from spark_job import ledger
from spark_job.ledger import Connection, Generation, StreamBatch
from spark_job.offsets import Offsets


@dataclass(frozen=True)
class Position:
    """The newest generation and its newest stream row; where it has none yet, the generation's own start."""

    generation: Generation
    newest: StreamBatch | None

    @property
    def end(self) -> Offsets:
        """How far the generation has read, exclusive."""
        return self.newest.end if self.newest else self.generation.start

    @property
    def safe(self) -> Offsets:
        """Where a new generation must start to see every session whole that is not dealt with yet."""
        return self.newest.safe if self.newest else self.generation.start

    @property
    def done(self) -> Offsets:
        """Everything that closes below has been dealt with."""
        return self.newest.done if self.newest else self.generation.high_water

    @property
    def batch_id(self) -> int | None:
        """The newest stream batch of the generation."""
        return self.newest.batch_id if self.newest else None


def read(connection: Connection) -> Position | None:
    """Return the current position, None in an empty outbox. To decide by it, read it under the writer lock."""
    generation = ledger.newest_generation(connection)
    if generation is None:
        return None
    return Position(generation, ledger.newest_stream_batch(connection, generation.number))
