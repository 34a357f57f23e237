"""What a transaction did, and its row in `outbox.delivery` with the lane's mirror, written after Kafka's commit."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import orjson
import psycopg
from confluent_kafka import KafkaError, Message
from psycopg.types.json import Jsonb

from db.statements import statement
from publisher.cursor import Cursor
from publisher.lease import Lease, LeaseLostError
from publisher.progress import Progress
from publisher.refusals import RECORD_ERRORS


class Tally:
    """First and last Kafka offset of a transaction in each topic partition, out of delivery reports."""

    def __init__(self) -> None:
        self._offsets: dict[tuple[str, int], list[int]] = {}
        self.refused: dict[tuple[int, str], tuple[int, str]] = {}
        """(batch_id, session_key) of rows that Kafka refused -> (error code, text). Filled by `watch` only."""

    def report(self, error: KafkaError | None, message: Message) -> None:
        """Take a delivery report."""
        if error is not None:
            return  # the commit fails then, and says so
        # Kafka tells topic, partition and offset of every record that it took.
        place: tuple[str, int] = (message.topic(), message.partition())  # type: ignore[assignment]
        offset: int = message.offset()  # type: ignore[assignment]
        bounds = self._offsets.get(place)
        if bounds is None:
            self._offsets[place] = [offset, offset]
        elif offset < bounds[0]:
            bounds[0] = offset
        elif offset > bounds[1]:
            bounds[1] = offset

    def watch(
        self, batch_id: int, session_key: str, *, own_timestamp: bool
    ) -> Callable[[KafkaError | None, Message], None]:
        """Return a delivery report callback that also remembers the row whose record Kafka refused for itself.

        `own_timestamp`: the row gives the record's time. Otherwise it is this host's clock that Kafka refuses.
        """

        def report(error: KafkaError | None, message: Message) -> None:
            clock = error is not None and error.code() == KafkaError.INVALID_TIMESTAMP and not own_timestamp
            if error is not None and error.code() in RECORD_ERRORS and not clock:
                self.refused.setdefault((batch_id, session_key), (error.code(), error.str()))
            self.report(error, message)

        return report

    def as_json(self) -> dict[str, dict[str, list[int]]]:
        """Return {topic: {partition: [first, last]}}."""
        found: dict[str, dict[str, list[int]]] = {}
        for (topic, partition), bounds in sorted(self._offsets.items()):
            found.setdefault(topic, {})[str(partition)] = bounds
        return found


def record_delivery(
    connection: psycopg.Connection[Any],
    lease: Lease,
    progress: Progress,
    after: Cursor,
    tally: Tally | None,
    ahead: tuple[int, UUID] | None = None,
) -> bool:
    """Append the delivery and move the mirror, in one statement. `tally` None: the offsets are not known any more.

    `ahead`: batch id and commit id at the end of what was read ahead from the delivery's own end on. Returns whether
    the ledger, at this moment, has both; False where nothing was read ahead.

    Raises LeaseLostError when the lease is another's, or the mirror is not one behind.
    """
    offsets = None if tally is None else Jsonb(tally.as_json(), dumps=orjson.dumps)
    written = connection.execute(
        statement("publisher", "record_delivery"),
        lease.parameters
        | _cursor("after", after)
        | _cursor("to", progress.cursor)
        | {
            "seq": progress.seq,
            "commit_id": progress.commit_id,
            "sessions": progress.sessions,
            "events": progress.events,
            "kafka_offsets": offsets,
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
    """Set the mirror to where a resume moved the lane, and append it as a delivery of that kind, in one statement.

    Raises LeaseLostError when the lease is another's.
    """
    written = connection.execute(
        statement("publisher", "record_resume"),
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


def parked_within(connection: psycopg.Connection[Any], lease: Lease, progress: Progress) -> int:
    """Return how many rows Postgres knows as put aside in what a transaction passed."""
    from_batch, from_key = progress.after.exclusive_bound()
    to_batch, to_key = progress.cursor.exclusive_bound()
    row = connection.execute(
        statement("publisher", "parked_within"),
        lease.parameters
        | {"from_batch": from_batch, "from_key": from_key, "to_batch": to_batch, "to_key": to_key},
    ).fetchone()
    return 0 if row is None else row[0]


def parked_up_to(connection: psycopg.Connection[Any], epoch: int, lane: int, cursor: Cursor) -> int:
    """Return how many rows of a lane were put aside up to a cursor."""
    batch, key = cursor.exclusive_bound()
    row = connection.execute(
        statement("publisher", "parked_up_to"),
        {"epoch": epoch, "lane": lane, "to_batch": batch, "to_key": key},
    ).fetchone()
    return 0 if row is None else row[0]


def commit_id_at(connection: psycopg.Connection[Any], batch_id: int) -> UUID | None:
    """Return the commit id of a batch, None where the ledger has no such row."""
    row = connection.execute(statement("publisher", "ledger_commit"), {"batch_id": batch_id}).fetchone()
    return None if row is None else row[0]


def _cursor(prefix: str, cursor: Cursor) -> dict[str, Any]:
    return {f"{prefix}_batch": cursor.batch_id, f"{prefix}_key": cursor.session_key}
