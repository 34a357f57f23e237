"""Reads from Postgres, in one snapshot, the partitions and who needs them. Every service has the rights for that."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg

from db.connection import snapshot
from db.statements import queries
from db.windows import Detached, detached
from publisher.retention.letters import LettersSurvey, survey_letters
from publisher.retention.plan import (
    Decision,
    DropVerdict,
    LaneProgress,
    Needs,
    OpenAtUpgrade,
    Partition,
    ReplayNeed,
    closed,
    plan_drops,
)
from service.settings import RetentionSettings

_NEEDS = queries("publisher.retention", "needs")
_PARTITIONS = queries("publisher.retention", "partitions")


@dataclass(frozen=True, slots=True)
class Growth:
    """How fast the outbox grows, measured over the partitions that exist."""

    newest_batch: int
    batches: int
    span_s: float
    bytes: int

    def per_day(self, amount: int) -> float | None:
        """Return `amount` over the whole span as an amount a day, None without a span."""
        return amount * 86_400 / self.span_s if self.span_s > 0 else None


@dataclass(frozen=True)
class RetentionSurvey:
    """What retention would decide now, and the sizes that it decides by."""

    decisions: list[Decision]
    detached: list[Detached]
    growth: Growth
    letters: LettersSurvey

    @property
    def to_drop(self) -> list[Decision]:
        """Partitions that will be dropped."""
        return [decision for decision in self.decisions if decision.verdict is DropVerdict.DROP]

    @property
    def refused(self) -> list[Decision]:
        """Partitions that should be dropped but cannot be."""
        return [decision for decision in self.decisions if decision.verdict is DropVerdict.REFUSED]

    @property
    def last_batch_with_partition(self) -> int:
        """The last batch up to which every coming batch has a partition, without a gap."""
        last = self.growth.newest_batch
        for decision in self.decisions:
            if decision.partition.first <= last + 1 < decision.partition.end:
                last = decision.partition.end - 1
        return last


def survey(connection: psycopg.Connection[Any], settings: RetentionSettings) -> RetentionSurvey:
    """Read everything and decide. `connection` must be in autocommit mode. Raises psycopg.Error."""
    with snapshot(connection):
        partitions = [Partition(*row) for row in connection.execute(_PARTITIONS["list"]).fetchall()]
        found = detached(connection)
        growth = _growth(connection, partitions)
        needs = _needs(connection, partitions, growth.newest_batch)
        letters = survey_letters(connection, settings)
    decisions = plan_drops(partitions, needs, settings.keep_s, settings.keep_bytes, letters.disk_bytes)
    return RetentionSurvey(decisions, found, growth, letters)


def _growth(connection: psycopg.Connection[Any], partitions: list[Partition]) -> Growth:
    first = min((partition.first for partition in partitions), default=0)
    row = connection.execute(_NEEDS["newest_batch"], {"first_batch": first}).fetchone()
    assert row is not None
    newest: int = row[0]
    oldest_at: datetime | None = row[1]
    newest_at: datetime | None = row[2]
    span = (newest_at - oldest_at).total_seconds() if oldest_at is not None and newest_at is not None else 0.0
    return Growth(newest, row[3], span, sum(partition.size for partition in partitions))


def _needs(connection: psycopg.Connection[Any], partitions: list[Partition], newest_batch: int) -> Needs:
    opened: dict[str, list[OpenAtUpgrade]] = {}
    for partition in partitions:
        if closed(partition, newest_batch):
            found = connection.execute(
                _NEEDS["open_at_upgrade"],
                {"first_batch": partition.first, "last_batch": partition.end - 1},
            ).fetchall()
            opened[partition.name] = [OpenAtUpgrade(*row) for row in found]
    return Needs(
        newest_batch=newest_batch,
        lanes=[LaneProgress(*row) for row in connection.execute(_NEEDS["lanes"]).fetchall()],
        parked=dict(connection.execute(_NEEDS["parked"]).fetchall()),
        replays=[ReplayNeed(*row) for row in connection.execute(_NEEDS["replays"]).fetchall()],
        open_at_upgrade=opened,
    )
