"""Which of a replay's rows go out: topics are described first; rows that the target would refuse are left out or stop it."""

import time
from typing import NamedTuple

import structlog

from db.errors import UnavailableError
from db.settings import Settings
from publisher import clients
from publisher.checks import LaneStoppedError
from publisher.records import ExtraHeaders, Row
from publisher.refusals import Refusal, TopicLimits
from publisher.replay.errors import ReplayStoppedError, Why
from publisher.replay.outgoing import Outgoing, refusal_of
from publisher.replay.sending import Place, Prepared
from publisher.replay.store import Replay
from publisher.replay.target import Target

_log = structlog.get_logger()


class StartOverError(Exception):
    """Nothing is wrong, but another producer is needed."""


class Admitted(NamedTuple):
    """What goes out of a chunk, how many rows do not, and the ids of all topics written so far."""

    prepared: list[Prepared]
    left_out: int
    topic_ids: dict[str, str]

    @property
    def events(self) -> int:
        """How many records go out."""
        return sum([len(one.records) for one in self.prepared])


class ReplayAdmission:
    """One replay's."""

    def __init__(self, settings: Settings, replay: Replay, target: Target, *, skip_refused: bool) -> None:
        """`skip_refused`: rows that the target refuses for themselves are left out; else they stop the replay."""
        self._replay = replay
        self._target = target
        self._skip_refused = skip_refused
        self._client_max_bytes = clients.client_max_bytes(target.kafka)
        self._compressed = clients.compresses(target.kafka)
        self._began_at = 0.0
        self.outgoing = Outgoing(
            replay.replay_uuid,
            None if replay.topics is None else frozenset(replay.topics),
            replay.target_topic,
            ExtraHeaders.of(settings.publisher),
        )
        self._open_transactions = target.open_transactions()
        self.refused: dict[Place, Refusal] = {}
        """Rows that Kafka itself refused."""
        self.batch_bytes: int | None = None
        """The least `max.message.bytes` of the topics met so far, where that is below the producer's default batch."""

    def begin(self) -> None:
        """Start over: whatever made that necessary may have changed the topics too."""
        self._began_at = time.monotonic()
        self._open_transactions.begin()

    def admit(self, rows: list[Row], known: dict[str, str]) -> Admitted:
        """Sort the rows. `known`: ids of the topics written so far.

        Raises ReplayStoppedError, StartOverError where the producer's batches do not suit a topic, UnavailableError where a transaction
        is open on one, KafkaException.
        """
        names: set[str] = set()
        for row in rows:
            names |= self.outgoing.destinations(row)
        limits, ids = self._described(names, known, newer_than=self._began_at)
        prepared, refused = self._sorted(rows, limits)
        if refused:
            # The limits may be a minute old: ask again before a row is refused.
            limits, ids = self._described(names, known, newer_than=time.monotonic())
            prepared, refused = self._sorted(rows, limits)
        for place, found in refused.items():
            self._leave_out(place, found)
        return Admitted(prepared, len(refused), ids)

    def _sorted(
        self, rows: list[Row], limits: dict[str, TopicLimits]
    ) -> tuple[list[Prepared], dict[Place, Refusal]]:
        prepared: list[Prepared] = []
        refused: dict[Place, Refusal] = {}
        for row in rows:
            place = (row.batch_id, row.session_key)
            try:
                one = Prepared(row, self.outgoing.records(row))
            except ValueError as error:
                refused[place] = Refusal("invalid", str(error))
                continue
            found = self.refused.get(place) or refusal_of(row, one.records, limits, self._client_max_bytes)
            if found is not None:
                refused[place] = found
            elif one.records:
                prepared.append(one)
        return prepared, refused

    def _leave_out(self, place: Place, found: Refusal) -> None:
        batch_id, session_key = place
        replay_id = self._replay.replay_id
        if not self._skip_refused:
            # The next look is a new one: the target may have been mended meanwhile.
            self.refused.pop(place, None)
            raise ReplayStoppedError(
                Why.ROW_REFUSED,
                f"the target refuses the row of batch {batch_id}, session key {session_key!r}, for itself ({found.reason}): "
                f"{found.detail}. Nothing of its transaction is sent. Mend the target, then `publisher replay go-on "
                f"{replay_id}`; or leave out such rows, which are counted and logged: `publisher replay go-on {replay_id} "
                "--skip-refused`",
            )
        _log.warning(
            "left_out",
            replay=replay_id,
            batch_id=batch_id,
            session_key=session_key,
            reason=found.reason,
            detail=found.detail,
        )

    def _described(
        self, names: set[str], known: dict[str, str], *, newer_than: float
    ) -> tuple[dict[str, TopicLimits], dict[str, str]]:
        """Return the limits of the topics, and the ids of these and of all written before."""
        described = self._target.describe({*names, *known}, newer_than=newer_than)
        ids = {name: topic.topic_id for name, topic in described.items()}
        for name, topic_id in known.items():
            if ids[name] != topic_id:
                replay_id = self._replay.replay_id
                raise ReplayStoppedError(
                    Why.TOPIC_REPLACED,
                    f"topic {name!r} had the id {topic_id}, now it is {ids[name]}: it was deleted and made again, and what replay "
                    f"{replay_id} has sent to it is gone. `publisher replay cancel {replay_id}` and start a new one",
                )
        least = min((described[name].max_message_bytes for name in names), default=clients.BATCH_BYTES)
        if least < (self.batch_bytes or clients.BATCH_BYTES):
            self.batch_bytes = least
            raise StartOverError
        try:
            self._open_transactions.wait({name: described[name] for name in names})
        except LaneStoppedError as error:
            raise UnavailableError(str(error)) from error
        limits = {
            name: TopicLimits(topic.partitions, None if self._compressed else topic.max_message_bytes)
            for name, topic in described.items()
        }
        return limits, ids
