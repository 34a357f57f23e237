"""Decides which rows of a replay are sent. A refused row stops it, or is left out on request. Topic ids are in the progress record."""

import json
from collections.abc import Mapping
from hashlib import sha256

import structlog

from contract.output_topics import OutputTopics
from publisher.delivery.admission import Admission
from publisher.delivery.context import Context
from publisher.kafka.open_transactions import OpenTransactions
from publisher.kafka.topics import OutputTopic
from publisher.protocol.outgoing import Outgoing
from publisher.protocol.records import RowKey
from publisher.protocol.refusals import Refusal
from publisher.protocol.stop_reasons import StoppedError, StopReason
from publisher.replay.store import Replay

_log = structlog.get_logger()


def explain_refused(replay_id: int, key: RowKey, found: Refusal) -> str:
    """Return why a replay stopped at a row. `outbox.erase_traces` searches this text for the key, which is therefore quoted as JSON."""
    batch_id, session_key = key
    quoted = json.dumps(session_key, ensure_ascii=False)
    return (
        f"the target refuses the row of batch {batch_id}, session key {quoted}, for itself ({found.reason}): {found.detail}. Nothing of "
        f"its transaction is sent. Fix the target, then `publisher replay go-on {replay_id}`; or leave out such rows, which are counted "
        f"and logged: `publisher replay go-on {replay_id} --skip-refused`"
    )


class ReplayAdmission(Admission):
    """One replay's."""

    def __init__(self, context: Context, replay: Replay, outgoing: Outgoing, *, skip_refused: bool) -> None:
        open_transactions = OpenTransactions(context.topics, context.give_up)
        publisher = context.settings.publisher
        targets = replay.targets
        # A topic that a person has named is allowed. The settings decide about outputs that keep their own topic.
        named = targets.named if targets.every is not None or publisher.output_topics else ()
        others = () if targets.every is not None else publisher.output_topics
        allowed = OutputTopics([*others, *named], publisher.progress_topic)
        super().__init__(context.settings.kafka, context.topics, outgoing, open_transactions, allowed)
        self._replay_id = replay.replay_id
        self._skip_refused = skip_refused
        self.topic_ids: dict[str, str] = {}
        """The ids of the topics written so far."""

    def begin_tenure(self, topic_ids: dict[str, str]) -> None:
        """Start over, with the ids of the topics that Kafka's newest record names. Rows that Kafka itself refused stay out."""
        self.topic_ids = topic_ids
        self.begin(self._aside)

    def _put_aside(self, key: RowKey, found: Refusal) -> None:
        batch_id, session_key = key
        if not self._skip_refused:
            raise StoppedError(StopReason.ROW_REFUSED, explain_refused(self._replay_id, key, found))
        _log.warning(
            "left_out",
            replay=self._replay_id,
            batch_id=batch_id,
            session_key_sha256=sha256(session_key.encode()).hexdigest(),
            reason=found.reason,
            detail=found.detail,
        )

    def _check_ids(self, described: Mapping[str, OutputTopic]) -> None:
        # All topics written so far, not only those of this chunk: what was sent to them counts as sent.
        all_described = self._topics.describe(self.topic_ids) | dict(described)
        ids = {name: topic.topic_id for name, topic in all_described.items()}
        for name, known in self.topic_ids.items():
            if ids[name] != known:
                raise StoppedError(
                    StopReason.TARGET_TOPIC_REPLACED,
                    f"topic {name!r} had the id {known}, now it is {ids[name]}: it was deleted and created again, and what replay "
                    f"{self._replay_id} has sent to it is gone. `publisher replay cancel {self._replay_id}` and start a new one",
                )
        self.topic_ids = ids
