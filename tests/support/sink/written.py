"""What a sink has written, read back on its connection."""

from typing import Any, LiteralString

from db.connection import Connection
from spark_job.input.offsets import Offsets
from spark_job.ledger.open_partitions import OpenPartitions
from spark_job.monitoring import metrics


def one(connection: Connection, query: LiteralString) -> Any:
    row = connection.execute(query).fetchone()
    return row[0] if row and len(row) == 1 else row


def of_batch(connection: Connection, batch_id: int) -> tuple[Offsets, Offsets, OpenPartitions]:
    """Start, end and what is open, of a ledger row."""
    row = connection.execute(
        "SELECT start_offsets, end_offsets, open_state FROM outbox.batch WHERE batch_id = %s", [batch_id]
    ).fetchone()
    assert row is not None
    return Offsets.from_json(row[0]), Offsets.from_json(row[1]), OpenPartitions.from_json(row[2])


def nothing_is_written(connection: Connection, *, but_batches: int = 0) -> bool:
    counts = one(
        connection,
        "SELECT (SELECT count(*) FROM outbox.batch), (SELECT count(*) FROM outbox.session_output),"
        " (SELECT count(*) FROM outbox.dead_letter)",
    )
    return bool(counts == (but_batches, but_batches, 0))


def counted(name: str, **labels: str) -> float:
    return metrics.REGISTRY.get_sample_value(f"outbox_{name}_total", labels) or 0.0
