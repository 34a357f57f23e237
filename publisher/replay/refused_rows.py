"""Skips rows of a replay that Kafka refuses, or stops the replay."""

import json
from hashlib import sha256

import structlog

from publisher.protocol.records import RowKey
from publisher.protocol.refusals import Refusal
from publisher.protocol.stop_reasons import StoppedError, StopReason, TopicMissingError

_log = structlog.get_logger()


def explain_refused(replay_id: int, row: RowKey, refusal: Refusal) -> str:
    """Return why a replay stopped at a row. The key is quoted as JSON, because `outbox.erase_traces` searches this text for it."""
    quoted = json.dumps(row.session_key, ensure_ascii=False)
    return (
        f"the target refuses the row of batch {row.batch_id}, session key {quoted}, for itself ({refusal.reason}): {refusal.detail}. "
        f"Nothing of its transaction is sent. Fix the target, then `publisher replay go-on {replay_id}`; or leave out such rows, which "
        f"are counted and logged: `publisher replay go-on {replay_id} --skip-refused`"
    )


class RefusedRows:
    """The exclusion policy of one replay. A refused row stops the replay, unless refused rows are to be skipped. A missing topic stops
    it."""

    def __init__(self, replay_id: int, *, skip_refused: bool) -> None:
        self._replay_id = replay_id
        self._skip_refused = skip_refused

    def exclude(self, row: RowKey, refusal: Refusal) -> None:
        """Log that a row is skipped; the progress record counts it. Raises StoppedError unless refused rows are to be skipped."""
        if not self._skip_refused:
            raise StoppedError(StopReason.ROW_REFUSED, explain_refused(self._replay_id, row, refusal))
        _log.warning(
            "left_out",
            replay=self._replay_id,
            batch_id=row.batch_id,
            session_key_sha256=sha256(row.session_key.encode()).hexdigest(),
            reason=refusal.reason,
            detail=refusal.detail,
        )

    def topic_missing(self, error: TopicMissingError, _rows: int) -> Refusal:
        """Raise the error."""
        raise error
