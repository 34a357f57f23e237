"""Moves lanes on request: the way out when Kafka and Postgres no longer tell one history.

`plan` says what would happen and changes nothing. `act` then does for each lane what a publisher's transaction does:
1. take the lease, from whoever has it; 2. fence the lane's publisher; 3. read Kafka again; 4. one progress record in a Kafka
transaction, numbered beyond everything that is known; 5. the mirror and a delivery of kind `resume`, in one statement.
A crash anywhere leaves a lane that either is as it was or goes on from the record; giving the command again is always right.
"""

import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import psycopg
from confluent_kafka import Producer

from db.errors import ContinuityError, SettingsError
from db.fault_points import reach
from db.settings import Settings
from db.statements import statement
from publisher.checks import Identity
from publisher.cursor import Cursor
from publisher.deliveries import commit_id_at, record_resume
from publisher.lease import Lease
from publisher.progress import Progress, Totals, progress_key
from publisher.rebinding import Accepted, Binding, look, rebind
from publisher.resume_plan import Found, Move, Way, healthy, move, target
from publisher.resume_survey import LaneEpoch, Ledger, Survey, read_ledger
from publisher.shared import Epoch
from publisher.takeover import fencing_producer, transactional_id
from publisher.topics import Topics


class Request(NamedTuple):
    """What was asked for. `batch`: the first to send, with Way.BATCH. `lanes`: only these; empty: all."""

    way: Way
    batch: int = 0
    lanes: Sequence[int] = ()
    accepted: Accepted = Accepted()

    def __str__(self) -> str:
        return f"--from {self.way}" + (f" {self.batch}" if self.way is Way.BATCH else "")


@dataclass(frozen=True)
class LanePlan:
    """One lane's move with its counts, (sessions, events) each."""

    move: Move
    again: tuple[int, int]
    skipped: tuple[int, int]
    trusted: tuple[int, int]

    def same_as(self, other: "LanePlan") -> bool:
        """Whether both say the same to the person who was asked."""
        return (self.move.to, self.again, self.skipped, self.move.unknown) == (
            other.move.to,
            other.again,
            other.skipped,
            other.move.unknown,
        )


@dataclass(frozen=True)
class Plan:
    """What a resume does. `in_step`: lanes that go on by themselves and are left alone. `first_batch`: the first that is sent."""

    request: Request
    binding: Binding
    ledger: Ledger
    lanes: list[LanePlan]
    in_step: list[tuple[int, int]]
    first_batch: int | None

    @property
    def changes_nothing(self) -> bool:
        """Whether there is nothing to do."""
        return not self.lanes and not self.binding.changed


class Resume:
    """One use of the command."""

    def __init__(self, connection: psycopg.Connection[Any], settings: Settings, topics: Topics) -> None:
        self._connection = connection
        self._settings = settings
        self._topics = topics
        self._holder = f"{socket.gethostname()}:{os.getpid()} (resume)"

    def plan(self, request: Request) -> Plan:
        """Look at everything. Raises ContinuityError where this is not the way, SettingsError, KafkaException, psycopg.Error."""
        binding = look(
            self._connection,
            self._topics,
            self._settings.publisher.transactional_id_prefix,
            request.accepted,
        )
        ledger = read_ledger(self._connection)
        if not ledger.epochs:
            raise ContinuityError(
                "this outbox has no lanes yet: nothing was ever published from it. `publisher run` begins"
            )
        first = self._first_batch(request, ledger)
        lanes_known = max(of.epoch.lanes for of in ledger.epochs)
        if unknown := [lane for lane in request.lanes if not 0 <= lane < lanes_known]:
            raise SettingsError(f"there is no lane {unknown[0]}: the lanes are 0 to {lanes_known - 1}")
        survey = self._survey(binding)
        lanes, in_step = [], []
        for of in self._epochs(ledger, first):
            for lane in range(of.epoch.lanes):
                if request.lanes and lane not in request.lanes:
                    continue
                found = survey.lane(of, lane, ledger.epochs[-1].epoch)
                plan = self._lane(survey, request, binding, ledger, found, first)
                if plan is not None and request.way in (Way.KAFKA, Way.MIRROR):
                    # A publisher at work is between Kafka's commit and Postgres' at times, but it moves.
                    again = survey.lane(of, lane, ledger.epochs[-1].epoch)
                    moving = again.known_seq > found.known_seq
                    plan = None if moving else self._lane(survey, request, binding, ledger, again, first)
                if plan is None:
                    in_step.append((of.epoch.epoch, lane))
                else:
                    lanes.append(plan)
        return Plan(request, binding, ledger, lanes, in_step, first)

    def act(
        self, plan: Plan, moved_meanwhile: Callable[[LanePlan], bool], done: Callable[[LanePlan], None]
    ) -> None:
        """Do it. `moved_meanwhile` is asked when a lane is no longer as it was planned: whether to go on with the new plan.

        Raises ContinuityError where it says no, LeaseLostError when a second resume runs, and as `plan`.
        """
        if plan.lanes:
            self._topics.ensure_progress(
                self._survey(plan.binding).progress_topic,
                max(of.epoch.lanes for of in plan.ledger.epochs),
                self._settings.publisher.progress_replication,
                create=True,
            )
        for lane in plan.lanes:
            done(self._move(plan, lane, moved_meanwhile))
        reach("resume.before_binding")
        if plan.binding.changed:
            rebind(self._connection, plan.binding)
        # A publisher that looks at stopped lanes only now and then looks now.
        self._connection.execute(statement("publisher", "notify_batch"))

    def _survey(self, binding: Binding) -> Survey:
        return Survey(self._connection, self._settings, self._topics, binding.found.outbox_uuid)

    def _first_batch(self, request: Request, ledger: Ledger) -> int | None:
        if request.way is Way.BEGINNING:
            return max(self._current(ledger).epoch.from_batch, ledger.first_kept)
        if request.way is not Way.BATCH:
            return None
        if not 1 <= request.batch <= ledger.end + 1:
            raise SettingsError(
                f"batch {request.batch} is not in the ledger, which ends at {ledger.end}. Name one from 1 to {ledger.end + 1}; "
                "the last means: only what comes from now on"
            )
        return request.batch

    def _current(self, ledger: Ledger) -> LaneEpoch:
        row = self._connection.execute(statement("publisher", "current_epoch")).fetchone()
        number = row[0] if row is not None else ledger.epochs[-1].epoch.epoch
        return next(of for of in ledger.epochs if of.epoch.epoch == number)

    def _epochs(self, ledger: Ledger, first: int | None) -> list[LaneEpoch]:
        """Return the epochs whose lanes may have to move: from the one that is worked on, or that of the first batch."""
        begin = self._current(ledger).epoch.epoch
        if first is not None:
            holding = [of.epoch.epoch for of in ledger.epochs if of.epoch.from_batch <= first]
            begin = min([begin, *holding[-1:]])
        return [of for of in ledger.epochs if of.epoch.epoch >= begin]

    def _lane(
        self,
        survey: Survey,
        request: Request,
        binding: Binding,
        ledger: Ledger,
        found: Found,
        first: int | None,
    ) -> LanePlan | None:
        """Return the lane's move, None where it goes on by itself to the same place."""
        identity = Identity(binding.found.outbox_uuid, binding.cluster_id)
        position = healthy(identity, found, ledger.epochs[-1].epoch.epoch)
        to = target(found, request.way, first or 0, position)
        if position is not None and position.cursor == to and not found.stopped:
            return None
        if not survey.can_follow(to):
            raise ContinuityError(
                f"lane {found.lane} of epoch {found.epoch.epoch} cannot go on after {to}: the ledger has no row of that batch, "
                f"by which the lane would know its history. Nothing was changed. The ledger ends at {ledger.end}; choose "
                "another batch with `publisher resume --from batch N`"
            )
        planned = move(found, to)
        return LanePlan(
            planned,
            survey.count(found.lane, planned.again),
            survey.count(found.lane, planned.skipped),
            survey.count(found.lane, planned.trusted),
        )

    def _move(self, plan: Plan, lane: LanePlan, moved_meanwhile: Callable[[LanePlan], bool]) -> LanePlan:
        found = lane.move.found
        epoch = found.epoch
        self._connection.execute(
            statement("publisher", "add_lanes"), {"epoch": epoch.epoch, "lanes": epoch.lanes}
        )
        lease = self._take_lease(epoch, found.lane)
        reach("resume.after_lease")
        producer = self._fence(plan.binding, epoch.epoch, found.lane)
        for stale in found.later:
            # What a lane epoch that this ledger no longer has left behind must not come back.
            self._fence(plan.binding, *stale).purge()
        reach("resume.after_fencing")
        survey = self._survey(plan.binding)
        of = next(of for of in plan.ledger.epochs if of.epoch == epoch)
        now = survey.lane(of, found.lane, plan.ledger.epochs[-1].epoch)
        planned = self._lane(survey, plan.request, plan.binding, plan.ledger, now, plan.first_batch)
        if planned is None:
            lease.release(self._connection)
            return lane
        if not planned.same_as(lane) and not moved_meanwhile(planned):
            lease.release(self._connection)
            raise ContinuityError(
                f"lane {found.lane} of epoch {epoch.epoch} moved on while you were asked. Give the command again"
            )
        progress = self._progress(plan, survey, planned)
        self._commit(producer, survey.progress_topic, progress, planned.move.found)
        reach("resume.after_commit")
        record_resume(self._connection, lease, progress)
        reach("resume.after_record")
        lease.release(self._connection)
        return planned

    def _take_lease(self, epoch: Epoch, lane: int) -> Lease:
        lease_s = max(self._settings.publisher.lease_s, 2 * self._settings.kafka.request_timeout_s)
        row = self._connection.execute(
            statement("publisher", "force_lease"),
            {"epoch": epoch.epoch, "lane": lane, "holder": self._holder, "lease_s": lease_s},
        ).fetchone()
        if row is None:
            raise RuntimeError("the lane's row was inserted before")
        return Lease(epoch.epoch, lane, row[0], lease_s)

    def _fence(self, binding: Binding, epoch: int, lane: int) -> Producer:
        name = transactional_id(binding.prefix, binding.found.outbox_uuid, epoch, lane)
        return fencing_producer(self._settings, name, None, lambda: False)

    def _progress(self, plan: Plan, survey: Survey, lane: LanePlan) -> Progress:
        found, to = lane.move.found, lane.move.to
        known = found.newest.total if found.newest is not None else found.mirror_total
        return Progress(
            outbox_uuid=plan.binding.found.outbox_uuid,
            cluster_id=plan.binding.cluster_id,
            epoch=found.epoch.epoch,
            lane=found.lane,
            seq=found.known_seq + 1,
            after=to,
            cursor=to,
            commit_id=self._commit_id(to),
            sessions=0,
            events=0,
            total=Totals(
                max(known.sessions, found.mirror_total.sessions),
                max(known.events, found.mirror_total.events),
                survey.parked_up_to(found.epoch.epoch, found.lane, to),
            ),
            resumed=str(plan.request),
        )

    def _commit_id(self, to: Cursor) -> Any:
        return None if to.batch_id == 0 else commit_id_at(self._connection, to.batch_id)

    def _commit(self, producer: Producer, topic: str, progress: Progress, found: Found) -> None:
        producer.begin_transaction()
        for epoch, lane in found.later:
            producer.produce(topic, None, progress_key(epoch, lane), lane)
        producer.produce(topic, progress.encode(), progress.key(), progress.lane)
        producer.flush()
        reach("resume.before_commit")
        producer.commit_transaction()
