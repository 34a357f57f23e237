"""Batches whose ledger rows say which offsets they read, as the job's do."""

from tests.support.outbox.batches import TOPIC_ID
from tests.support.queries import query

STEP = 100_000
"""Offsets that each batch reads: batch N those from N * STEP on, as `simple` numbers its sessions' ends."""


def read_offsets(dsn: str) -> None:
    """Let every batch of the ledger have read its own step of partition 0."""
    query(
        dsn,
        "UPDATE outbox.batch SET start_offsets = jsonb_build_object(%s::text, jsonb_build_object('0', batch_id * %s::bigint)),"
        " end_offsets = jsonb_build_object(%s::text, jsonb_build_object('0', (batch_id + 1) * %s::bigint)) WHERE kind = 'stream'",
        TOPIC_ID,
        STEP,
        TOPIC_ID,
        STEP,
    )
