"""One lane moved by `publisher resume`: the lanes' protocol (delivery/delivery.py), with a transaction that carries no rows."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

from confluent_kafka import Producer

from contract.output_topics import OutputTopics
from contract.progress import Progress, Totals, progress_key
from db import operations
from db.statements import queries
from publisher.assignment.membership import add_lanes
from publisher.delivery.admission import Admission
from publisher.delivery.context import Context
from publisher.delivery.delivery import Connection, Delivery, StepOutcome
from publisher.delivery.outbox_connection import OutboxConnection
from publisher.delivery.transaction import OffsetTally, ProgressRecord
from publisher.kafka.clients import batch_bytes
from publisher.kafka.fencing import fencing_producer
from publisher.kafka.open_transactions import OpenTransactions
from publisher.kafka.topics import OutputTopic
from publisher.lane.lane import lane_transactional_id
from publisher.outbox.deliveries import commit_id_at, record_delivery, record_resume
from publisher.outbox.lease import Lease, LeaseLostError
from publisher.protocol.history import DeliveryPosition
from publisher.protocol.outgoing import Outgoing
from publisher.protocol.records import Row
from publisher.protocol.refusals import Place, RecordRefusedError, Refusal, no_row_s_fault
from publisher.protocol.stop_reasons import StartOverError, StoppedError, StopReason
from publisher.resume.planning import LanePlan, Planner, ResumePlan
from service.errors import ContinuityError

_LEASES = queries("publisher", "leases")
_RESUMES = queries("publisher", "resumes")


class _Given(OutboxConnection):
    """The command's own connection, which outlives the move."""

    def __init__(self, context: Context, connection: Connection) -> None:
        super().__init__(context, "publisher resume")
        self._given = connection

    def open(self) -> Connection:
        return self._given

    def discard(self) -> None:
        pass


class _NoRows(Admission):
    """Nothing goes out."""

    def _put_aside(self, place: Place, found: Refusal) -> None:
        raise NotImplementedError

    def _check_ids(self, described: Mapping[str, OutputTopic]) -> None:
        pass


class LaneMove(Delivery[LanePlan | None, LanePlan]):
    """The steps of a lane's transaction: 1. the lease, from whoever has it; 2. the lane's publisher is fenced; 3. and 4. Kafka is read
    again, and the plan made anew; 5. the lane is marked in Postgres, for retention, and one progress record goes out, numbered beyond
    everything that is known; 6. the mirror and a delivery of kind `resume`, in one statement, which takes the mark away.
    """

    def __init__(
        self,
        context: Context,
        connection: Connection,
        planner: Planner,
        plan: ResumePlan,
        lane: LanePlan,
        moved_meanwhile: Callable[[LanePlan], bool],
    ) -> None:
        """`moved_meanwhile` is asked when a lane is no longer as it was planned: whether to continue with the new plan."""
        outgoing = Outgoing()
        open_transactions = OpenTransactions(context.topics, context.give_up)
        admission = _NoRows(
            context.settings.kafka, context.topics, outgoing, open_transactions, OutputTopics()
        )
        super().__init__(context, _Given(context, connection), outgoing, admission)
        self._planner = planner
        self._plan = plan
        self._lane = lane
        self._moved_meanwhile = moved_meanwhile
        self._lease: Lease | None = None
        self._under_way: Progress | None = None

    def run(self) -> LanePlan:
        """Move the lane; return its plan as it was carried out."""
        try:
            if self.open():
                with suppress(StartOverError):  # it is recorded, and the producer needed no more
                    self.run_once()
            self._held().release(self._connection.open())
        except ContinuityError:
            self._held().release(self._connection.open())
            raise
        finally:
            self.discard()
        return self._lane

    @property
    def _transactional_id(self) -> str:
        return lane_transactional_id(self._context, self._epoch, self._number)

    @property
    def _epoch(self) -> int:
        return self._lane.move.found.epoch.epoch

    @property
    def _number(self) -> int:
        return self._lane.move.found.lane

    def _acquire(self, connection: Connection) -> bool:
        settings = self._context.settings
        add_lanes(connection, self._lane.move.found.epoch)
        lease_s = max(settings.publisher.lease_s, 2 * settings.kafka.request_timeout_s)
        row = connection.execute(
            _LEASES["force"],
            {
                "epoch": self._epoch,
                "lane": self._number,
                "holder": self._context.holder,
                "lease_s": lease_s,
            },
        ).fetchone()
        if row is None:
            raise RuntimeError("the lane's row was inserted before")
        self._lease = Lease(self._epoch, self._number, row[0], lease_s)
        return True

    def _fence(self) -> Producer:
        producer = super()._fence()
        settings = self._context.settings
        for stale in self._lane.move.found.later:
            # What a lane epoch that this ledger no longer has left behind must not come back.
            fencing_producer(
                settings.kafka,
                self._context.topics,
                lane_transactional_id(self._context, *stale),
                settings.publisher.transaction_timeout_ms,
                batch_bytes(settings.kafka),
                self._context.give_up,
            ).purge()
        return producer

    def _read_progress(self) -> LanePlan | None:
        return self._planner.fenced(self._plan, self._lane)

    def _check_history(self, connection: Connection, newest: LanePlan | None) -> DeliveryPosition | None:
        if newest is None:
            return None  # it went on to there by itself
        if not newest.same_as(self._lane) and not self._moved_meanwhile(newest):
            raise ContinuityError(
                f"lane {self._number} of epoch {self._epoch} moved on while you were asked. Run the command again"
            )
        self._lane, found = newest, newest.move.found
        # The transaction between whose two commits the fenced publisher was is recorded; nobody would later.
        last = found.newest if found.newest is found.shared else None
        unrecorded = last if last is not None and last.seq == found.mirror.seq + 1 else None
        return DeliveryPosition(found.known_seq, newest.move.to, self._commit_id(connection), unrecorded)

    def _record_missing(self, connection: Connection, newest: LanePlan | None) -> None:
        unrecorded = None if newest is None else newest.move.found.newest
        if unrecorded is None:
            return
        if unrecorded.resumed is not None:
            record_resume(connection, self._held(), unrecorded)
        else:
            record_delivery(connection, self._held(), unrecorded, unrecorded.after, None)

    def _begin(self, connection: Connection, position: DeliveryPosition) -> None:
        self._progress_from = self._context.topics.written.last_read(
            self._context.progress_topic, self._number
        )

    def _next_chunk(self, connection: Connection) -> LanePlan | StepOutcome:
        found, to = self._lane.move.found, self._lane.move.to
        known = found.newest.total if found.newest is not None else found.mirror_total
        parked = self._planner.survey(self._plan.binding).parked_up_to(self._epoch, self._number, to)
        self._under_way = Progress(
            outbox_uuid=self._context.identity.outbox_uuid,
            cluster_id=self._context.identity.cluster_id,
            epoch=self._epoch,
            lane=self._number,
            seq=found.known_seq + 1,
            after=self._lane.move.delivered,
            cursor=to,
            commit_id=self._commit_id(connection),
            sessions=0,
            events=0,
            total=Totals(
                max(known.sessions, found.mirror_total.sessions),
                max(known.events, found.mirror_total.events),
                parked,
            ),
            resumed=str(self._plan.request),
        )
        self._mark(connection)
        return self._lane

    def _mark(self, connection: Connection) -> None:
        """Write down that the lane may be set back from now on: until the mirror is, too, retention would trust the mirror."""
        reason = (
            f"{StopReason.RESUMING}: `publisher resume {self._plan.request}` was to let this lane continue after {self._lane.move.to} and "
            "did not end. Run it again, or start `publisher run`, which continues where that stopped"
        )
        with connection.transaction():
            marked = connection.execute(_RESUMES["mark_lane"], self._held().parameters | {"reason": reason})
            if marked.rowcount != 1:
                raise LeaseLostError(f"lane {self._number} was taken over by another publisher")
            # Before Kafka's commit: no lane is moved there without its row in the operator log.
            operations.record(connection, "publisher resume", self._plan.request.asked(), self._outcome())

    def _outcome(self) -> dict[str, Any]:
        (again, skipped), to = (self._lane.again, self._lane.skipped), self._lane.move.to
        return {
            "epoch": self._epoch,
            "lane": self._number,
            "after_batch": to.batch_id,
            "events_again": again[1],
            "events_skipped": skipped[1],
        }

    def _progress(self, chunk: LanePlan, rows: list[Row]) -> Sequence[ProgressRecord]:
        topic, progress = self._context.progress_topic, self._sent()
        stale = [
            ProgressRecord(topic, None, progress_key(epoch, lane), lane)
            for epoch, lane in chunk.move.found.later
        ]
        return [*stale, ProgressRecord(topic, progress.encode(), progress.key(), progress.lane)]

    def _record(self, connection: Connection, tally: OffsetTally) -> None:
        record_resume(connection, self._held(), self._sent())

    def _search(self, error: RecordRefusedError) -> None:
        raise self._refused_by_nobody(error)

    def _refused_by_nobody(self, error: RecordRefusedError) -> Exception:
        text = no_row_s_fault(error.code, str(error), self._context.progress_topic)
        return StoppedError(StopReason.RECORD_REFUSED, text)

    def _commit_id(self, connection: Connection) -> UUID | None:
        to = self._lane.move.to
        return None if to.batch_id == 0 else commit_id_at(connection, to.batch_id)

    def _sent(self) -> Progress:
        if self._under_way is None:
            raise RuntimeError("a move has a record")
        return self._under_way

    def _held(self) -> Lease:
        if self._lease is None:
            raise RuntimeError("a move has a lease")
        return self._lease
