"""Plans a resume. Changes nothing."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import psycopg

from db.statements import queries
from publisher.kafka.topics import Topics
from publisher.protocol.history_check import Identity
from publisher.resume.decision import LaneSurvey, Move, Way, healthy, move, target
from publisher.resume.rebinding import AcceptedRebinding, Binding, read_binding
from publisher.resume.survey import LaneEpoch, Ledger, ResumeSurvey, read_ledger
from service.errors import ContinuityError, SettingsError
from service.settings import Settings

_EPOCHS = queries("publisher", "epochs")


class ResumeRequest(NamedTuple):
    """The command's options. `batch`: the first batch to send, with Way.BATCH. `lanes`: only these lanes, all if empty."""

    way: Way
    batch: int = 0
    lanes: Sequence[int] = ()
    accepted: AcceptedRebinding = AcceptedRebinding()

    def asked(self) -> dict[str, Any]:
        """Return the options, for the operator log."""
        return {
            "from": self.way,
            "batch": self.batch or None,
            "lanes": list(self.lanes) or None,
            "accept_new_cluster": self.accepted.cluster,
            "accept_new_server": self.accepted.server,
            "accept_new_topics": list(self.accepted.topics) or None,
        }

    def __str__(self) -> str:
        return f"--from {self.way}" + (f" {self.batch}" if self.way is Way.BATCH else "")


@dataclass(frozen=True)
class LanePlan:
    """One lane's move, with its counts: (sessions, events) each."""

    move: Move
    again: tuple[int, int]
    skipped: tuple[int, int]
    trusted: tuple[int, int]

    def same_as(self, other: "LanePlan") -> bool:
        """Whether both plans look the same to the person who is asked."""
        return self._said() == other._said()

    def _said(self) -> tuple[Any, ...]:
        return self.move.to, self.again, self.skipped, self.trusted, self.move.unknown


@dataclass(frozen=True)
class ResumePlan:
    """The plan of a resume. `in_step`: lanes that continue by themselves and are left alone. `first_batch`: the first batch that is
    sent."""

    request: ResumeRequest
    binding: Binding
    ledger: Ledger
    lanes: list[LanePlan]
    in_step: list[tuple[int, int]]
    first_batch: int | None

    @property
    def dropped(self) -> list[tuple[int, int]]:
        """The batches that a lane passes although their rows are gone, as inclusive ranges."""
        firsts = [lane.move.to.batch_id + (lane.move.to.session_key is None) for lane in self.lanes]
        named = [] if self.first_batch is None else [self.first_batch]
        return self.ledger.dropped(max(1, min(firsts + named))) if firsts else []

    @property
    def changes_nothing(self) -> bool:
        """Whether there is nothing to do."""
        return not self.lanes and not self.binding.changed


class Planner:
    """Reads the facts for a resume, and decides where each lane continues."""

    def __init__(self, connection: psycopg.Connection[Any], settings: Settings, topics: Topics) -> None:
        self._connection = connection
        self._settings = settings
        self._topics = topics

    def plan(
        self, request: ResumeRequest, surveyed: Callable[[int, int], None] = lambda done, total: None
    ) -> ResumePlan:
        """Survey all lanes and plan. `surveyed` is called with the number of lanes done and the number of all lanes.

        Raises ContinuityError if this `--from` cannot be used, SettingsError, KafkaException, psycopg.Error.
        """
        binding = read_binding(
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
        survey = self.survey(binding)
        newest = ledger.epochs[-1].epoch
        asked = [
            (of, lane)
            for of in self._epochs(ledger, first)
            for lane in range(of.epoch.lanes)
            if not request.lanes or lane in request.lanes
        ]
        lanes, in_step = [], []
        for done, (of, lane) in enumerate(asked):
            surveyed(done, len(asked))
            found = survey.lane(of, lane, newest)
            plan = self._lane(survey, request, binding, ledger, found, first)
            if plan is not None and request.way in (Way.KAFKA, Way.MIRROR):
                # A running publisher may be between the commits in Kafka and in Postgres, but then it makes progress.
                again = survey.lane(of, lane, newest)
                moving = again.known_seq > found.known_seq
                plan = None if moving else self._lane(survey, request, binding, ledger, again, first)
            if plan is None:
                in_step.append((of.epoch.epoch, lane))
            else:
                lanes.append(plan)
        return ResumePlan(request, binding, ledger, lanes, in_step, first)

    def fenced(self, plan: ResumePlan, lane: LanePlan) -> LanePlan | None:
        """Return a lane's plan after its publisher was fenced; None if the lane has reached the planned position by itself.

        Raises ContinuityError if the lane epochs have changed since the plan, and as `plan`.
        """
        survey = self.survey(plan.binding, fenced=True)
        found = lane.move.found
        of = next(of for of in plan.ledger.epochs if of.epoch == found.epoch)
        now = survey.lane(of, found.lane, plan.ledger.epochs[-1].epoch)
        # The ledger is read after Kafka, because an epoch is in the ledger before it has records in Kafka. With the plan's epochs, records
        # of a newer epoch would be taken for the remains of a lost ledger, and removed.
        if read_ledger(self._connection).epochs != plan.ledger.epochs:
            raise ContinuityError(
                f"the lanes were changed while you were asked (`publisher lanes` shows them). Lane {found.lane} of epoch "
                f"{found.epoch.epoch} was not moved; run the command again"
            )
        return self._lane(survey, plan.request, plan.binding, plan.ledger, now, plan.first_batch)

    def survey(self, binding: Binding, *, fenced: bool = False) -> ResumeSurvey:
        """Return a survey of lanes."""
        return ResumeSurvey(
            self._connection, self._settings, self._topics, binding.found.outbox_uuid, fenced=fenced
        )

    def _first_batch(self, request: ResumeRequest, ledger: Ledger) -> int | None:
        if request.way is Way.BEGINNING:
            return max(self._current(ledger).epoch.from_batch, ledger.first_kept)
        if request.way is not Way.BATCH:
            return None
        if not 1 <= request.batch <= ledger.end + 1:
            raise SettingsError(
                f"batch {request.batch} is not in the ledger, which ends at {ledger.end}. Name one from 1 to {ledger.end + 1}; "
                "the last one: only new batches"
            )
        return request.batch

    def _current(self, ledger: Ledger) -> LaneEpoch:
        row = self._connection.execute(_EPOCHS["current"]).fetchone()
        number = row[0] if row is not None else ledger.epochs[-1].epoch.epoch
        return next(of for of in ledger.epochs if of.epoch.epoch == number)

    def _epochs(self, ledger: Ledger, first: int | None) -> list[LaneEpoch]:
        """Return the epochs whose lanes may have to move: from the current epoch on, or from the first batch's if that is earlier."""
        begin = self._current(ledger).epoch.epoch
        if first is not None:
            holding = [of.epoch.epoch for of in ledger.epochs if of.epoch.from_batch <= first]
            begin = min([begin, *holding[-1:]])
        return [of for of in ledger.epochs if of.epoch.epoch >= begin]

    def _lane(
        self,
        survey: ResumeSurvey,
        request: ResumeRequest,
        binding: Binding,
        ledger: Ledger,
        found: LaneSurvey,
        first: int | None,
    ) -> LanePlan | None:
        """Return the lane's plan, None if the lane continues by itself from the same position."""
        identity = Identity(binding.found.outbox_uuid, binding.cluster_id)
        position = healthy(identity, found, ledger.epochs[-1].epoch.epoch)
        to = target(found, request.way, first or 0, position)
        if position is not None and position.cursor == to and not found.stopped:
            return None
        if not survey.can_follow(to):
            raise ContinuityError(
                f"lane {found.lane} of epoch {found.epoch.epoch} cannot continue after {to}: the ledger has no row of that batch, "
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
