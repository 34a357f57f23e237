"""Moments in the life of a batch, seen from the checkpoint and the ledger. `Pipeline.held_up_batch` holds one."""

from tests.acceptance.pipeline import Position


def is_in_flight(position: Position) -> bool:
    """Spark has planned a batch that the outbox does not have."""
    return position.planned > position.stored


def is_between(position: Position) -> bool:
    """The outbox has a batch that Spark has not committed."""
    return position.stored > position.committed


def is_between_batches(position: Position) -> bool:
    """Spark has committed all that it planned."""
    return position.planned == position.stored == position.committed
