"""Records a transaction after Kafka's commit. One statement writes the row in `outbox.delivery` and updates the lane's mirror."""

from typing import Any
from uuid import UUID

import orjson
import psycopg
from psycopg.types.json import Jsonb

from contract.cursor import Cursor
from contract.progress import Progress
from db.statements import queries
from publisher.outbox.lease import Lease, LeaseLostError

_DELIVERIES = queries("publisher", "deliveries")


def record_delivery(
    connection: psycopg.Connection[Any],
    lease: Lease,
    progress: Progress,
    after: Cursor,
    offsets: dict[str, dict[str, list[int]]] | None,
    ahead: tuple[int, UUID] | None = None,
) -> bool:
    """Append the delivery and update the mirror, in one statement. `offsets`: as from OffsetTally.as_json, None if they are unknown.

    `ahead`: batch id and commit id at the end of the chunk that was read ahead, None if nothing was. Returns whether the ledger still has
    that batch and the last batch of the delivery; False without `ahead`.

    Raises LeaseLostError if another holder has the lease, or the mirror is not exactly one transaction behind.
    """
    written = connection.execute(
        _DELIVERIES["record"],
        lease.parameters
        | _cursor("after", after)
        | _cursor("to", progress.cursor)
        | {
            "seq": progress.seq,
            "commit_id": progress.commit_id,
            "sessions": progress.sessions,
            "events": progress.events,
            "kafka_offsets": None if offsets is None else Jsonb(offsets, dumps=orjson.dumps),
            "ahead_batch": None if ahead is None else ahead[0],
            "ahead_commit_id": None if ahead is None else ahead[1],
        },
    )
    if written.rowcount != 1:
        raise LeaseLostError(
            f"transaction {progress.seq} of lane {progress.lane} is in Kafka, but the lane's row in Postgres is another "
            "holder's by now"
        )
    found = written.fetchone()
    return ahead is not None and found is not None and bool(found[0])


def record_resume(connection: psycopg.Connection[Any], lease: Lease, progress: Progress) -> None:
    """Set the mirror to the position of a resume, and append the resume as a delivery, in one statement.

    Raises LeaseLostError if another holder has the lease.
    """
    written = connection.execute(
        _DELIVERIES["record_resume"],
        lease.parameters
        | _cursor("after", progress.after)
        | _cursor("to", progress.cursor)
        | {
            "seq": progress.seq,
            "commit_id": progress.commit_id,
            "sessions": progress.total.sessions,
            "events": progress.total.events,
            "note": progress.resumed,
        },
    )
    if written.rowcount != 1:
        raise LeaseLostError(
            f"the resume of lane {progress.lane} is in Kafka, but the lane's row in Postgres is another holder's by now; "
            "that one records it"
        )


def _cursor(prefix: str, cursor: Cursor) -> dict[str, Any]:
    return {f"{prefix}_batch": cursor.batch_id, f"{prefix}_key": cursor.session_key}
