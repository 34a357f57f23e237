"""A lane without servers: its row of the outbox, its record in Kafka, and a lane that is open and hears what it is told."""

import logging
import threading
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from contract.cursor import Cursor
from contract.progress import Progress
from publisher.delivery.context import Context
from publisher.delivery.excluded_rows import ExcludedRows
from publisher.delivery.large_row_turns import LargeRowTurns
from publisher.delivery.sender import Connection, Sender, StepOutcome, Tenure
from publisher.delivery.transaction_size import TransactionSize
from publisher.kafka.progress_reader import Newest
from publisher.lane.lane import Lane
from publisher.lane.reader import LaneChunk
from publisher.outbox.lease import Lease
from publisher.outbox.topic_ids import BoundTopics
from publisher.protocol.epochs import Epoch
from publisher.protocol.history_check import DeliveryPosition, Identity
from publisher.protocol.outgoing import Outgoing
from publisher.protocol.records import Row
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


class FakeSender(Sender):
    """It hears of a broken connection while it delivers, and delivers nothing."""

    breaks = False
    fails: Exception | None = None

    def hear(self) -> None:
        """Take what librdkafka logs."""
        if self.breaks:
            self._link.logger.log(logging.INFO, "%s [%s] %s", "FAIL", "rdkafka#producer-1", CLOSED)

    def _run(self, *_: Any) -> None:
        if self.fails is not None:
            raise self.fails
        self.hear()


class FakeLane(Lane):
    """An open lane whose chunks are there at once."""

    outcome = StepOutcome.DELIVERED

    def __init__(self, context: Context) -> None:
        super().__init__(context, Epoch(1, 1, 1), 0)
        self.context = context
        size = TransactionSize(1_000, 1 << 20, 60.0)
        self.sender: FakeSender = FakeSender(context, Outgoing(), "lane", size, 60_000)
        producer: Any = SimpleNamespace(poll=lambda _seconds: 0)
        self.sender.producer = producer
        nothing: Any = None
        self._admission.begin(ExcludedRows(), BoundTopics(self._connection.get))
        self._tenure = Tenure(nothing, DeliveryPosition(0, Cursor(0), None))

    def hold(self, lease: Lease) -> None:
        """Let it have this lease."""
        self._lease = lease

    def record_missing(self, connection: Connection, newest: Newest) -> None:
        """The end of step 4 alone."""
        self._record_missing(connection, newest)

    def _next_chunk(self, *_: Any) -> Any:
        if self.outcome is not StepOutcome.DELIVERED:
            self.sender.hear()
            return self.outcome
        return LaneChunk([], Cursor(1), COMMIT, True, None)

    def _record(self, *_: Any) -> None: ...


def opened(outcome: StepOutcome, *, breaks: bool) -> FakeLane:
    settings: Any = SimpleNamespace(kafka=KafkaSettings(), publisher=PublisherSettings(), postgres=None)
    stop = threading.Event()
    context = SimpleNamespace(
        settings=settings,
        topics=SimpleNamespace(describe=lambda *_, **__: {}),
        progress_topic="progress",
        turns=None,
        large_row_turns=LargeRowTurns(),
        identity=IDENTITY,
        stop=stop,
        give_up=stop.is_set,
        outbox=None,
    )
    lane = FakeLane(cast(Context, context))
    lane.outcome, lane.sender.breaks = outcome, breaks
    return lane
