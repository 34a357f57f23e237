"""Why a lane or a replay is stopped, or starts over. docs/stopped-lanes.md says what to do about each reason."""

from enum import StrEnum

from service.errors import ContinuityError, UnavailableError


class StopReason(StrEnum):
    """The names of the reasons. Those that begin with `target_` or name rows stop replays; the others stop lanes, and some stop both."""

    OTHER_OUTBOX = "other_outbox"
    OTHER_CLUSTER = "other_cluster"
    OTHER_PREFIX = "other_transactional_id_prefix"
    OTHER_SERVER = "other_postgres_server"
    DATABASE_RESTORED = "database_restored"
    KAFKA_LOST = "kafka_lost"
    LEDGER_GAP = "ledger_gap"
    NO_SUCH_LANE = "no_such_lane"
    PROGRESS_NOT_COMPACTED = "progress_topic_not_compacted"
    PROGRESS_REFUSED = "progress_topic_refused"
    OUTPUT_TOPIC_REPLACED = "output_topic_replaced"
    OUTPUT_TOPIC_MISSING = "output_topic_missing"
    OUTPUT_TOPIC_UNWRITABLE = "output_topic_unwritable"
    OPEN_TRANSACTION = "open_transaction"
    TRANSACTIONS_REFUSED = "transactions_refused"
    NOT_AUTHORISED = "not_authorised"
    RECORD_REFUSED = "record_refused"
    RESUMING = "resuming"
    UNEXPECTED = "unexpected"
    TARGET_TOPIC_MISSING = "target_topic_missing"
    TARGET_TOPIC_REPLACED = "target_topic_replaced"
    ROW_REFUSED = "row_refused"
    ROWS_GONE = "rows_gone"


class StoppedError(ContinuityError):
    """A lane or a replay must not continue. `retry`: the cause may be corrected elsewhere, so a lane checks again by itself."""

    def __init__(self, reason: StopReason, explanation: str, *, retry: bool = False) -> None:
        super().__init__(f"{reason}: {explanation}")
        self.reason = reason
        self.retry = retry


class TopicMissingError(StoppedError):
    """An output topic does not exist."""

    def __init__(self, topic: str, explanation: str) -> None:
        super().__init__(StopReason.OUTPUT_TOPIC_MISSING, explanation, retry=True)
        self.topic = topic


class StartOverError(Exception):
    """Nothing is wrong, but a new producer is needed: open the lane or replay again."""


class HandoverStuckError(UnavailableError):
    """Another lane of this process hangs while it hands rows to Kafka's client, and no other lane gets its turn."""
