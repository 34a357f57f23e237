"""Reads the facts for `publisher resume`: each lane's records in Kafka, its mirror, and the ledger."""

from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, LiteralString, NamedTuple
from uuid import UUID

import psycopg

from contract.cursor import Cursor
from contract.progress import Progress, Totals, lane_of_key, progress_topic
from db import windows
from db.statements import queries
from publisher.kafka.progress_reader import MOST_LATER, progress_records
from publisher.kafka.topics import Topics
from publisher.outbox.ledger import commit_id_at, newest_batch
from publisher.outbox.parked import parked_up_to
from publisher.protocol.epochs import Epoch, LaneId
from publisher.protocol.history_check import MOST_AHEAD, Mirror
from publisher.protocol.stop_reasons import StoppedError, StopReason
from publisher.resume.decision import LaneSurvey, ResendRange
from service.settings import Settings

_EPOCHS = queries("publisher", "epochs")
_RESUMES = queries("publisher", "resumes")
_ROWS = queries("publisher", "rows")

_MOST_TOMBSTONED = 100 * MOST_LATER
"""The most lanes in a partition that may have a tombstone. A resume writes at most MOST_LATER; others may write any number."""


class LaneEpoch(NamedTuple):
    """A lane epoch with its last batch, None for the newest epoch."""

    epoch: Epoch
    end: int | None


class Ledger(NamedTuple):
    """The extent of the outbox. `kept`: the batches whose rows retention has kept, as inclusive ranges, oldest first."""

    epochs: list[LaneEpoch]
    end: int
    kept: list[tuple[int, int]]

    @property
    def first_kept(self) -> int:
        """The first batch whose rows retention has kept."""
        return max(1, self.kept[0][0]) if self.kept else 1

    def dropped(self, first: int) -> list[tuple[int, int]]:
        """Return the batches from `first` on whose rows are gone, as inclusive ranges. Partitions that retention could not drop may lie
        between them."""
        ranges = []
        for begin, last in [*self.kept, (self.end + 1, self.end)]:
            if first < min(begin, self.end + 1):
                ranges.append((first, min(begin, self.end + 1) - 1))
            first = max(first, last + 1)
        return ranges


def read_ledger(connection: psycopg.Connection[Any]) -> Ledger:
    """Read the extent of the outbox."""
    epochs = [LaneEpoch(Epoch(*row[:3]), row[3]) for row in connection.execute(_EPOCHS["ranges"]).fetchall()]
    kept = connection.execute(_ROWS["kept_ranges"]).fetchall()
    return Ledger(epochs, newest_batch(connection), kept)


class ResumeSurvey:
    """Reads the state of lanes. Publishers may run meanwhile: `LaneMove` fences a lane, and then reads it again."""

    def __init__(
        self,
        connection: psycopg.Connection[Any],
        settings: Settings,
        topics: Topics,
        outbox_uuid: UUID,
        *,
        fenced: bool,
    ) -> None:
        """`fenced`: every open transaction of the lanes has been ended, so the reads wait for all records."""
        self._fenced = fenced
        self._connection = connection
        self._settings = settings
        self._topics = topics
        self._outbox_uuid = outbox_uuid
        self.progress_topic = progress_topic(settings.publisher.progress_topic, outbox_uuid)

    def lane(self, of: LaneEpoch, lane: int, newest: Epoch) -> LaneSurvey:
        """Return the state of a lane. `newest`: the ledger's newest epoch.

        Raises StoppedError if another program floods the topic, KafkaException, psycopg.Error.
        """
        epoch = of.epoch
        row = self._connection.execute(_RESUMES["lane"], {"epoch": epoch.epoch, "lane": lane}).fetchone()
        seq, batch, key, commit_id, sessions, events, stopped, last = row or (
            0,
            0,
            None,
            None,
            0,
            0,
            False,
            0,
        )
        mirror = Mirror(seq, Cursor(batch, key), last)
        start = Cursor(epoch.from_batch - 1)
        partitions = self._topics.partitions(self.progress_topic)
        read = self._own(epoch, lane, newest, start, partitions, mirror, Totals(sessions, events))
        later = read.later
        if lane == 0:
            for partition in range(newest.lanes, partitions):
                later |= self._later(partition, newest)
        start_commit = commit_id_at(self._connection, start.batch_id)
        return LaneSurvey(
            epoch,
            of.end,
            lane,
            newest=read.newest,
            shared=read.shared,
            from_start=read.from_start,
            later=later,
            mirror=mirror,
            mirror_total=Totals(sessions, events),
            mirror_sound=commit_id_at(self._connection, batch) == commit_id
            if seq
            else self.can_follow(start),
            stopped=stopped,
            start_commit_id=start_commit,
            foreign=read.foreign,
        )

    def can_follow(self, cursor: Cursor) -> bool:
        """Whether a lane can continue after this cursor: the ledger must have the row of the cursor's batch."""
        return cursor.batch_id == 0 or commit_id_at(self._connection, cursor.batch_id) is not None

    def parked_up_to(self, epoch: int, lane: int, cursor: Cursor) -> int:
        """Return how many rows of a lane were parked up to a cursor."""
        return parked_up_to(self._connection, epoch, lane, cursor)

    def count(self, lane: int, rows: ResendRange) -> tuple[int, int]:
        """Return how many sessions and events a lane's rows have in a range, without parked rows."""
        if rows.to <= rows.after:
            return 0, 0
        from_batch, from_key = rows.after.exclusive_bound()
        to_batch, to_key = rows.to.exclusive_bound()
        sessions = events = 0
        for window in windows.cut(from_batch, to_batch):
            row = self._connection.execute(
                _RESUMES["count_rows"],
                {
                    "lane": lane,
                    "first_batch": window.first,
                    "last_batch": window.last,
                    "from_batch": from_batch,
                    "from_key": from_key,
                    "to_batch": to_batch,
                    "to_key": to_key,
                },
                prepare=False,
            ).fetchone()
            assert row is not None
            sessions, events = sessions + row[0], events + row[1]
        return sessions, events

    def _own(
        self,
        epoch: Epoch,
        lane: int,
        newest: Epoch,
        start: Cursor,
        partitions: int,
        mirror: Mirror,
        mirror_total: Totals,
    ) -> "_LaneRecords":
        found = _LaneRecords()
        tombstoned: set[LaneId] = set()
        if lane >= partitions:
            return found
        with closing(self._records(lane)) as records:
            for lane_id, value in records:
                if lane_id in tombstoned:
                    continue
                if value is None:
                    self._note_tombstone(tombstoned, lane_id)
                elif lane_id == (epoch.epoch, lane):
                    record = self._decoded(value)
                    if isinstance(record, Progress) and not _is_ahead(record, mirror, mirror_total):
                        found.newest = found.newest or record
                        if self._shares(record, mirror):
                            found.shared = record
                            return found
                        # If Postgres knew a transaction, the ledger would have the lane's first one, and it would be shared.
                        if record.after == start and record.resumed is None and mirror.seq == 0:
                            found.from_start = self.can_follow(start)
                            return found
                    elif found.newest is None and found.foreign is None:
                        found.foreign = (
                            record if isinstance(record, str) else "its numbers are none of a lane"
                        )
                elif lane_id[0] > newest.epoch:
                    self._add_later(found.later, lane_id, value)
        return found

    def _later(self, partition: int, newest: Epoch) -> dict[LaneId, Progress | None]:
        found: dict[LaneId, Progress | None] = {}
        tombstoned: set[LaneId] = set()
        for lane_id, value in self._records(partition):
            if value is None:
                self._note_tombstone(tombstoned, lane_id)
            elif lane_id[0] > newest.epoch and lane_id not in tombstoned:
                self._add_later(found, lane_id, value)
        return found

    def _add_later(self, later: dict[LaneId, Progress | None], lane_id: LaneId, value: bytes) -> None:
        """Add a lane's newest record; None for a record that is not this outbox's, which is removed like the others."""
        if lane_id in later:
            return
        if len(later) == MOST_LATER:
            raise self._flooded(
                lane_id, f"records of over {MOST_LATER:,} lane epochs that this ledger does not have"
            )
        record = self._decoded(value)
        later[lane_id] = record if isinstance(record, Progress) else None

    def _note_tombstone(self, tombstoned: set[LaneId], lane_id: LaneId) -> None:
        """Note that a tombstone deletes the older records of a lane."""
        if len(tombstoned) == _MOST_TOMBSTONED:
            raise self._flooded(lane_id, f"tombstones of over {_MOST_TOMBSTONED:,} lanes")
        tombstoned.add(lane_id)

    def _flooded(self, lane_id: LaneId, what: str) -> StoppedError:
        return StoppedError(
            StopReason.OTHER_OUTBOX,
            f"{self.progress_topic}[{lane_id[1]}] has {what}: something else writes to this progress topic. Find out what, and revoke its "
            "right; then delete the topic, and `publisher resume --from mirror` makes it again and continues after what Postgres "
            "recorded as delivered",
        )

    def _records(self, partition: int) -> Generator[tuple[LaneId, bytes | None]]:
        """Yield ((epoch, lane), value or None for a tombstone), newest first."""
        # Otherwise the reader would wait until the broker ends a transaction that a dead process left open.
        without_waiting = not self._fenced
        with progress_records(
            self._settings.kafka,
            self._topics,
            self.progress_topic,
            partition,
            without_waiting=without_waiting,
        ) as records:
            for key, value in records:
                lane_id = lane_of_key(key)
                if lane_id is not None:
                    yield lane_id, value

    def _decoded(self, value: bytes) -> Progress | str:
        """Return the record, or why it is not a record of this outbox."""
        try:
            record = Progress.decode(value)
        except ValueError as error:
            return str(error)
        if record.outbox_uuid != self._outbox_uuid:
            return f"it is of outbox {record.outbox_uuid}"
        return record

    def _shares(self, record: Progress, mirror: Mirror) -> bool:
        """Whether this ledger has the batch that was delivered last, and Postgres has the rows that were parked up to that batch."""
        if record.commit_id is None:
            # Anybody could have written this record (protocol/history_check.py), unless Postgres has it, too.
            at_mirror = (record.seq, record.cursor) == (mirror.seq, mirror.cursor)
            return record.cursor.batch_id == 0 and (at_mirror or self._is_recorded(record))
        if commit_id_at(self._connection, record.cursor.batch_id) != record.commit_id:
            return False
        parked = record.total.parked
        return parked == 0 or parked <= self.parked_up_to(record.epoch, record.lane, record.cursor)

    def _is_recorded(self, record: Progress) -> bool:
        transaction = {"epoch": record.epoch, "lane": record.lane, "seq": record.seq}
        return bool(_one(self._connection, _RESUMES["began_anew"], transaction)[0])


@dataclass
class _LaneRecords:
    """The records of a lane in its partition, as in LaneSurvey."""

    newest: Progress | None = None
    shared: Progress | None = None
    from_start: bool = False
    foreign: str | None = None
    later: dict[LaneId, Progress | None] = field(default_factory=dict)


def _is_ahead(record: Progress, mirror: Mirror, total: Totals) -> bool:
    """Whether a record's counts exceed what any lane can have done since the mirror: the next ones would not fit into Postgres' columns."""
    ahead = (
        record.seq - mirror.seq,
        record.total.sessions - total.sessions,
        record.total.events - total.events,
        record.total.parked,
    )
    return max(ahead) > MOST_AHEAD


def _one(connection: psycopg.Connection[Any], query: LiteralString, parameters: dict[str, Any]) -> Any:
    row = connection.execute(query, parameters).fetchone()
    if row is None:
        raise RuntimeError(f"one row was expected of: {query}")
    return row
