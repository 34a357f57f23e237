"""A lane without servers: its row of the outbox, its record in Kafka, and a lane that is open and hears what it is told."""

import logging
import threading
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from publisher.delivery.context import Context
from publisher.delivery.delivery import Outcome
from publisher.delivery.history import Identity
from publisher.delivery.progress import Progress
from publisher.delivery.records import Row
from publisher.lane.lane import Lane
from publisher.lane.reader import Chunk
from publisher.outbox.cursor import Cursor, Epoch
from service.settings import KafkaSettings, PublisherSettings

OUTBOX, COMMIT, OTHER = (UUID(int=n) for n in (1, 2, 3))
IDENTITY = Identity(OUTBOX, "cluster")
RECORD = Progress(
    outbox_uuid=OUTBOX,
    cluster_id="cluster",
    epoch=1,
    lane=0,
    seq=7,
    after=Cursor(3),
    cursor=Cursor(4, "key"),
    commit_id=COMMIT,
    sessions=10,
    events=200,
)
PLAIN = Row(
    batch_id=5,
    session_key="k",
    revision=0,
    session_topic_ids=["T"],
    session_partitions=[3],
    session_ends=[99],
    session_outputs=[3],
    topics=["out"] * 3,
    values=[b"a", None, b"c"],
    keys=None,
    headers=None,
    partitions=None,
    timestamps_ms=None,
)
# As librdkafka 2.16 writes it.
CLOSED = (
    "[thrd:TxnCoordinator]: TxnCoordinator: 127.0.0.1:40871: Disconnected: connection closed by peer: receive 0 after POLLIN"
    " (after 11024ms in state UP)"
)


class FakeLane(Lane):
    """An open lane whose chunks are there at once, and whose producer hears of a broken connection while it delivers."""

    outcome = Outcome.DELIVERED
    breaks = False
    fails: Exception | None = None

    def _next_chunk(self, connection: Any) -> Any:
        if self.outcome is not Outcome.DELIVERED:
            self._hear()
            return self.outcome
        return Chunk([], Cursor(1), None, True, None)

    def _deliver(self, *_: Any) -> None:
        if self.fails is not None:
            raise self.fails
        self._hear()

    def _hear(self) -> None:
        if self.breaks:
            self._link.logger.log(logging.INFO, "%s [%s] %s", "FAIL", "rdkafka#producer-1", CLOSED)


def opened(outcome: Outcome, *, breaks: bool) -> FakeLane:
    settings: Any = SimpleNamespace(kafka=KafkaSettings(), publisher=PublisherSettings(), postgres=None)
    stop = threading.Event()
    context = SimpleNamespace(
        settings=settings,
        topics=SimpleNamespace(describe=lambda *_, **__: {}),
        identity=IDENTITY,
        stop=stop,
        give_up=stop.is_set,
        outbox=None,
    )
    lane = FakeLane(cast(Context, context), Epoch(1, 1, 1), 0)
    lane.outcome, lane.breaks = outcome, breaks
    lane._tenure = cast(Any, SimpleNamespace(connection=None, producer=None))
    return lane
