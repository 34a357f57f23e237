"""A lane finishes the Kafka transaction that it has begun, whatever becomes of Postgres meanwhile."""

import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest
from confluent_kafka import Producer

from contract.cursor import Cursor
from contract.progress import Progress
from publisher.delivery.handover import HandoverTurns
from publisher.delivery.large_row_turns import LargeRowTurns
from publisher.delivery.sender import Tenure
from publisher.delivery.transaction import ProgressRecord
from publisher.kafka.progress_reader import Newest
from publisher.kafka.written_ends import WrittenEnds
from publisher.lane.lane import Lane
from publisher.lane.reader import LaneChunk
from publisher.lane.stray_rows import StrayRows
from publisher.outbox.lease import Lease
from publisher.protocol.epochs import Epoch
from publisher.protocol.history_check import DeliveryPosition
from service.settings import KafkaSettings, PublisherSettings
from tests.support.lanes import COMMIT, IDENTITY, OTHER, PLAIN


class FakeProducer:
    """Takes everything."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def begin_transaction(self) -> None:
        self.calls.append("begin")

    def produce(self, topic: str, *rest: Any, **_named: object) -> None:
        """Confirm each record whose report is wanted at offset 7 of partition 0."""
        if (report := rest[3]) is not None:
            report(None, SimpleNamespace(topic=lambda: topic, partition=lambda: 0, offset=lambda: 7))

    def poll(self, _seconds: float) -> None: ...

    def flush(self, _seconds: float) -> int:
        return 0

    def commit_transaction(self, _seconds: float) -> None:
        self.calls.append("commit")

    def abort_transaction(self, _seconds: float) -> None: ...

    def purge(self, **_: bool) -> None: ...


class LostConnection:
    """Its server is gone, which the next use finds out."""

    def __init__(self) -> None:
        self.closed = False
        self.questions = 0

    def pipeline(self) -> None:
        self.questions += 1
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    def execute(self, *_arguments: object) -> None:
        raise psycopg.OperationalError("the connection is closed" if self.closed else "it is lost")

    def close(self) -> None:
        self.closed = True


class OpenLane(Lane):
    """It has read a chunk, with more behind it."""

    def __init__(
        self, producer: FakeProducer, connection: LostConnection, *, one_by_one: bool = False
    ) -> None:
        stop = threading.Event()
        settings = SimpleNamespace(publisher=PublisherSettings(), kafka=KafkaSettings())
        context: Any = SimpleNamespace(
            settings=settings,
            topics=SimpleNamespace(written=WrittenEnds()),
            identity=IDENTITY,
            progress_topic="progress",
            stop=stop,
            turns=HandoverTurns(),
            large_row_turns=LargeRowTurns(),
            give_up=stop.is_set,
        )
        super().__init__(context, Epoch(1, 1, 2), 1)
        known: Any = connection
        self._connection.discard = lambda: None  # type: ignore[method-assign]
        self._tenure = Tenure(known, DeliveryPosition(0, Cursor(0), None))
        self.sender.producer = cast(Producer, producer)
        self._lease = Lease(1, 1, 1, 3.0)
        self._stray_rows = StrayRows(Epoch(1, 1, 2), 1, DeliveryPosition(0, Cursor(0), None))
        self._admission.admit = lambda rows: rows  # type: ignore[method-assign]
        if one_by_one:
            self.sender._bisection.refused(1)
        self._chunks.keep(LaneChunk([PLAIN], Cursor(5, "k"), COMMIT, True, None))

    def _record_of(self, progress: Progress) -> ProgressRecord:
        self.sent = progress
        return super()._record_of(progress)

    def record_missing(self, connection: Any, newest: Progress) -> None:
        """The end of step 4 alone, after the lane was opened again."""
        self._record_missing(connection, Newest(Progress.decode(newest.encode()), {}))


class Recording:
    """A connection that remembers the offsets of the delivery that is recorded."""

    def __init__(self) -> None:
        self.offsets: list[Any] = []

    def execute(self, _sql: object, parameters: dict[str, Any]) -> Any:
        if "kafka_offsets" in parameters:
            offsets = parameters["kafka_offsets"]
            self.offsets.append(None if offsets is None else offsets.obj)
        return SimpleNamespace(rowcount=1, fetchone=lambda: (0,))


@pytest.mark.guarantee(54)
def test_a_postgres_that_is_lost_while_a_lane_reads_ahead_leaves_no_transaction_open_in_kafka() -> None:
    producer, connection = FakeProducer(), LostConnection()
    with pytest.raises(psycopg.OperationalError, match="the connection is closed"):
        OpenLane(producer, connection).run_once()
    assert connection.questions == 1
    assert producer.calls == ["begin", "commit"]


@pytest.mark.parametrize("same", [True, False], ids=["its own transaction", "another process's"])
def test_a_delivery_that_postgres_missed_is_recorded_later_with_the_offsets_that_its_sender_knows(
    same: bool,
) -> None:
    lane = OpenLane(FakeProducer(), LostConnection())
    with pytest.raises(psycopg.OperationalError):
        lane.run_once()
    lane.discard()
    known = Recording()
    lane.record_missing(known, lane.sent if same else replace(lane.sent, commit_id=OTHER))
    assert known.offsets == [{"out": {"0": [7, 7]}} if same else None]


def test_a_lane_that_hunts_a_refused_row_keeps_its_connection_for_parking_it() -> None:
    connection = LostConnection()
    with pytest.raises(psycopg.OperationalError, match="it is lost"):
        OpenLane(FakeProducer(), connection, one_by_one=True).run_once()
    assert connection.questions == 0
