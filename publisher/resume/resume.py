"""Moves lanes on request, if the histories of Kafka and Postgres differ.

The plan (planner.py) has changed nothing. `act` then moves each lane with the steps of the delivery protocol (lane_move.py). A crash at any
point leaves each lane either unchanged or at the position in the progress record; running the command again is always safe.
"""

import os
import threading
from collections.abc import Callable
from typing import Any

import psycopg

from db.lock_holders import refuse_strangers
from db.statements import queries
from publisher.assignment.membership import wake_publishers
from publisher.delivery.context import Context, Timelines
from publisher.kafka.topics import Topics
from publisher.protocol.history_check import Identity
from publisher.resume.lane_move import LaneMove
from publisher.resume.planner import LanePlan, Planner, ResumePlan
from publisher.resume.rebinding import rebind
from publisher.retention.retention_lock import hold_off_retention
from service.errors import FencedError
from service.lifecycle.fault_points import reach
from service.lifecycle.process import host_name
from service.settings import Settings

_RESUMES = queries("publisher", "resumes")


class Resume:
    """One run of the command."""

    def __init__(self, connection: psycopg.Connection[Any], settings: Settings, topics: Topics) -> None:
        self._connection = connection
        self._settings = settings
        self._topics = topics
        self._planner = Planner(connection, settings, topics)

    def act(
        self, plan: ResumePlan, moved_meanwhile: Callable[[LanePlan], bool], done: Callable[[LanePlan], None]
    ) -> None:
        """Carry out the plan. `moved_meanwhile` is called if a lane no longer matches the plan; it returns whether to continue with the new
        one.

        Raises ContinuityError if `moved_meanwhile` returns False, FencedError while another resume is at work, LeaseLostError if a
        publisher has taken a lane over, and as `plan`.
        """
        self._alone()
        hold_off_retention(self._connection)
        if plan.lanes:
            self._topics.ensure_progress(
                self._planner.survey(plan.binding).progress_topic,
                max(of.epoch.lanes for of in plan.ledger.epochs),
                self._settings.publisher.progress_replication,
                create=True,
            )
        for lane in plan.lanes:
            move = LaneMove(self._context(plan), self._connection, self._planner, plan, lane, moved_meanwhile)
            done(move.run())
        reach("resume.before_binding")
        if plan.binding.changed:
            rebind(self._connection, plan.binding, plan.request.asked())
        # Publishers check stopped lanes only now and then, so make them check now.
        wake_publishers(self._connection)

    def _alone(self) -> None:
        """Keep a second resume from acting until this connection ends: each would take the other's lanes and record its own binding."""
        try:
            # Waits for the lock, because the connection of a command that has just died may still be open.
            self._connection.execute(_RESUMES["lock"])
        except psycopg.errors.LockNotAvailable as error:
            refuse_strangers(self._connection, "outbox.resume")
            raise FencedError(
                "another `publisher resume` is at work on this outbox. Nothing was done; run the command again when that has finished"
            ) from error

    def _context(self, plan: ResumePlan) -> Context:
        found = plan.binding.found
        publisher = self._settings.publisher.model_copy(
            update={"transactional_id_prefix": plan.binding.prefix}
        )
        return Context(
            settings=self._settings.model_copy(update={"publisher": publisher}),
            outbox=found,
            timelines=Timelines(found.timeline),
            identity=Identity(found.outbox_uuid, plan.binding.cluster_id),
            topics=self._topics,
            progress_topic=self._planner.survey(plan.binding).progress_topic,
            holder=f"{host_name()}:{os.getpid()} (resume)",
            stop=threading.Event(),
        )
