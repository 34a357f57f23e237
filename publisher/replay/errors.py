"""Why a replay stands still."""

from enum import StrEnum

from db.errors import ContinuityError


class Why(StrEnum):
    """The names of the reasons for which a replay stops."""

    DATABASE_RESTORED = "database_restored"
    KAFKA_LOST = "kafka_lost"
    OTHER_OUTBOX = "other_outbox"
    OTHER_CLUSTER = "other_cluster"
    TOPIC_MISSING = "target_topic_missing"
    TOPIC_REPLACED = "target_topic_replaced"
    NOT_AUTHORISED = "not_authorised"
    ROW_REFUSED = "row_refused"
    ROWS_GONE = "rows_gone"


class ReplayStoppedError(ContinuityError):
    """A replay must not go on as it is. It keeps its place: `publisher replay go-on` goes on once the cause is mended."""

    def __init__(self, why: Why, explanation: str) -> None:
        super().__init__(f"{why}: {explanation}")
        self.why = why
