"""Reads the facts for `publisher resume`: each lane's records in Kafka, its mirror, and the ledger."""

from collections.abc import Generator
from contextlib import closing
from typing import Any, LiteralString, NamedTuple
from uuid import UUID

import psycopg

from contract.cursor import Cursor
from contract.progress import Progress, Totals, lane_of_key
from db import windows
from db.statements import queries
from publisher.kafka.progress_reader import progress_records
from publisher.kafka.topics import Topics
from publisher.outbox.deliveries import commit_id_at, parked_up_to
from publisher.protocol.epochs import Epoch
from publisher.protocol.history_check import Mirror
from publisher.protocol.stop_reasons import StoppedError, StopReason
from publisher.resume.decision import LaneSurvey, ResendRange
from service.settings import Settings

_EPOCHS = queries("publisher", "epochs")
_LEDGER = queries("publisher", "ledger")
_RESUMES = queries("publisher", "resumes")
_ROWS = queries("publisher", "rows")


class LaneEpoch(NamedTuple):
    """A lane epoch, and its last batch; None for the newest."""

    epoch: Epoch
    end: int | None


class Ledger(NamedTuple):
    """The extent of the outbox. `kept`: the batches whose rows retention has kept, as ranges with both ends, oldest first."""

    epochs: list[LaneEpoch]
    end: int
    kept: list[tuple[int, int]]

    @property
    def first_kept(self) -> int:
        """The first batch whose rows retention has kept."""
        return max(1, self.kept[0][0]) if self.kept else 1

    def dropped(self, first: int) -> list[tuple[int, int]]:
        """Return the batches from `first` on whose rows are gone, as ranges with both ends. A refused partition may stay between them."""
        ranges = []
        for begin, last in [*self.kept, (self.end + 1, self.end)]:
            if first < min(begin, self.end + 1):
                ranges.append((first, min(begin, self.end + 1) - 1))
            first = max(first, last + 1)
        return ranges


def read_ledger(connection: psycopg.Connection[Any]) -> Ledger:
    """Read it."""
    epochs = [LaneEpoch(Epoch(*row[:3]), row[3]) for row in connection.execute(_EPOCHS["ranges"]).fetchall()]
    kept = connection.execute(_ROWS["kept_ranges"]).fetchall()
    return Ledger(epochs, _one(connection, _LEDGER["end"], {})[0], kept)


class ResumeSurvey:
    """Reads lanes. The publishers may run meanwhile; `Resume` reads each lane that it moves again once it has fenced it."""

    def __init__(
        self,
        connection: psycopg.Connection[Any],
        settings: Settings,
        topics: Topics,
        outbox_uuid: UUID,
        *,
        fenced: bool,
    ) -> None:
        """`fenced`: every open transaction has been ended, so the reads wait for all records."""
        self._fenced = fenced
        self._connection = connection
        self._settings = settings
        self._topics = topics
        self._outbox_uuid = outbox_uuid
        self.progress_topic = f"{settings.publisher.progress_topic}-{outbox_uuid}"

    def lane(self, of: LaneEpoch, lane: int, newest: Epoch) -> LaneSurvey:
        """Return the state of a lane. `newest`: the ledger's newest epoch.

        Raises StoppedError for records of another outbox or version, KafkaException, psycopg.Error.
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
        records, shared, from_start, later = self._own(epoch, lane, newest, start, partitions, seq)
        if lane == 0:
            for partition in range(newest.lanes, partitions):
                later |= self._later(partition, newest)
        start_commit = commit_id_at(self._connection, start.batch_id)
        return LaneSurvey(
            epoch,
            of.end,
            lane,
            newest=records,
            shared=shared,
            from_start=from_start,
            later=later,
            mirror=mirror,
            mirror_total=Totals(sessions, events),
            mirror_sound=commit_id_at(self._connection, batch) == commit_id
            if seq
            else self.can_follow(start),
            stopped=stopped,
            start_commit_id=start_commit,
        )

    def can_follow(self, cursor: Cursor) -> bool:
        """Whether a lane can continue after this cursor, which takes the ledger's row of its batch."""
        return cursor.batch_id == 0 or commit_id_at(self._connection, cursor.batch_id) is not None

    def parked_up_to(self, epoch: int, lane: int, cursor: Cursor) -> int:
        """Return how many rows of a lane were parked up to a cursor."""
        return parked_up_to(self._connection, epoch, lane, cursor)

    def count(self, lane: int, rows: ResendRange) -> tuple[int, int]:
        """Return sessions and events of a lane's rows in a range."""
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
        self, epoch: Epoch, lane: int, newest: Epoch, start: Cursor, partitions: int, mirror_seq: int
    ) -> tuple[Progress | None, Progress | None, bool, dict[tuple[int, int], Progress]]:
        """Return the lane's newest record, the newest that the ledger shares, whether its first one is there, and later epochs'."""
        first_met: Progress | None = None
        later: dict[tuple[int, int], Progress] = {}
        put_aside: set[tuple[int, int]] = set()
        if lane >= partitions:
            return None, None, False, {}
        with closing(self._records(lane)) as records:
            for place, record in records:
                if place in put_aside:
                    continue
                if record is None:
                    put_aside.add(place)
                elif place == (epoch.epoch, lane):
                    first_met = first_met or record
                    if self._shares(record, mirror_seq):
                        return first_met, record, False, later
                    if record.after == start and record.resumed is None:
                        return first_met, None, self.can_follow(start), later
                elif place[0] > newest.epoch:
                    later.setdefault(place, record)
        return first_met, None, False, later

    def _later(self, partition: int, newest: Epoch) -> dict[tuple[int, int], Progress]:
        found: dict[tuple[int, int], Progress | None] = {}
        for place, record in self._records(partition):
            if place[0] > newest.epoch:
                found.setdefault(place, record)
        return {place: record for place, record in found.items() if record is not None}

    def _records(self, partition: int) -> Generator[tuple[tuple[int, int], Progress | None]]:
        """Yield ((epoch, lane), record), newest first; a tombstone has the record None."""
        # A transaction that a dead process left open would be waited for until the broker ends it.
        without_waiting = not self._fenced
        with progress_records(
            self._settings.kafka,
            self._topics,
            self.progress_topic,
            partition,
            without_waiting=without_waiting,
        ) as records:
            for key, value in records:
                place = lane_of_key(key)
                if place is not None:
                    yield place, None if value is None else self._decoded(value)

    def _decoded(self, value: bytes) -> Progress:
        record = Progress.decode(value)
        if record.outbox_uuid != self._outbox_uuid:
            raise StoppedError(
                StopReason.OTHER_OUTBOX,
                f"{self.progress_topic} has a record of outbox {record.outbox_uuid}: something else writes to it. Give each "
                "outbox its own [publisher] progress_topic",
            )
        return record

    def _shares(self, record: Progress, mirror_seq: int) -> bool:
        """Whether this ledger has the batch that was delivered last, and Postgres the rows that were parked up to there."""
        if record.commit_id is None and record.seq > mirror_seq:
            return False  # anybody could have written it (protocol/history_check.py)
        if commit_id_at(self._connection, record.cursor.batch_id) != record.commit_id:
            return False
        parked = record.total.parked
        return parked == 0 or parked <= self.parked_up_to(record.epoch, record.lane, record.cursor)


def _one(connection: psycopg.Connection[Any], query: LiteralString, parameters: dict[str, Any]) -> Any:
    row = connection.execute(query, parameters).fetchone()
    if row is None:
        raise RuntimeError(f"one row was expected of: {query}")
    return row
