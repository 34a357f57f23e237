"""Parks rows of a lane instead of sending them."""

from collections.abc import Callable

import structlog

from publisher.delivery.outbox_connection import OutboxConnection
from publisher.kafka.topics import Topics
from publisher.monitoring import metrics
from publisher.outbox.lease import Lease
from publisher.outbox.parked import park
from publisher.outbox.parked_topics import standing
from publisher.protocol.records import RowKey
from publisher.protocol.refusals import Refusal
from publisher.protocol.remediation import park_command
from publisher.protocol.stop_reasons import TopicMissingError

_log = structlog.get_logger()


class Parking:
    """The exclusion policy of one lane: it parks refused rows, and the rows for a missing topic if a person has decided so."""

    def __init__(self, connection: OutboxConnection, held: Callable[[], Lease], topics: Topics) -> None:
        """`held` returns the lease of the lane, and raises LeaseLostError without one."""
        self._connection = connection
        self._held = held
        self._topics = topics

    def exclude(self, row: RowKey, refusal: Refusal) -> None:
        """Park a row. Raises LeaseLostError."""
        lease = self._held()
        park(self._connection.get(), lease, row, refusal)
        metrics.parked(refusal.reason)
        line = {"lane": lease.parameters["lane"], "batch_id": row.batch_id, "reason": refusal.reason}
        if refusal.reason == "topic_missing":
            # A chunk may have hundreds of such rows, and `topic_missing` has logged one line for all of them.
            _log.debug("parked", **line, detail=refusal.detail)
        else:
            _log.warning("parked", **line, detail=refusal.detail)

    def topic_missing(self, error: TopicMissingError, rows: int) -> Refusal:
        """Return why the rows are parked. Raises TopicMissingError unless a person has decided to park them and the topic is still
        missing."""
        if error.topic not in standing(self._connection.get()):
            text = str(error).removeprefix(f"{error.reason}: ")
            raise TopicMissingError(
                error.topic,
                f"{text}. Or have its rows parked, so that the lane continues without them: "
                f"`{park_command(error.topic)}`",
            ) from error
        # A broker that has just started may not know its topics yet, so its answer is checked.
        if not self._topics.is_missing(error.topic):
            raise error
        _log.warning("parked_for_topic", lane=self._held().parameters["lane"], topic=error.topic, rows=rows)
        return Refusal(
            "topic_missing",
            f"output topic {error.topic!r} does not exist, and its rows are parked by decision",
        )
