"""Reads the outbox's rows into buckets: every output as `ExpectedOutput`, with its marks. Continues where a killed audit stopped."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg

from contract.cursor import Cursor
from db.connection import snapshot
from db.statements import queries
from publisher.audit.readback import state as states
from publisher.audit.readback.digest import (
    EXPECTED,
    NONE,
    Mark,
    bucket_of,
    content_of,
    identity_of,
    is_own,
    short_hash,
)
from publisher.audit.readback.spill import Spill
from publisher.audit.readback.state import AuditState
from publisher.audit.scope import AuditedRange, RecordedResume, Scope, ranges
from publisher.outbox.sent_offsets import SentOffsets, malformed, read_sent_offsets
from publisher.protocol.records import SENT_NOW, Row, records

_DELIVERIES = queries("publisher.audit", "deliveries")
_ROWS = queries("publisher.audit", "rows")

_FETCH_ROWS = 500
_DELIVERIES_AT_ONCE = 500
SAVE_S = 5.0
_MOST_MALFORMED = 100
"""How many findings are kept."""


class ExpectedReader:
    """Reads the rows of the scope's batches from `state.next_batch` on and appends their outputs to `spill`."""

    def __init__(self, scope: Scope, state: AuditState, folder: Path, spill: Spill) -> None:
        self._scope = scope
        self._state = state
        self._folder = folder
        self._spill = spill
        self._topics = {name: number for number, name in enumerate(state.topics)}
        # Topics that occur only in rows have no entry in `lows`, because no delivery used them yet.
        self._lows = dict(zip(state.topics, state.lows or [], strict=False))
        self._reached: dict[tuple[int, int], tuple[int, SentOffsets]] = {}
        self._seed = bytes.fromhex(state.seed)

    def run(self, connection: psycopg.Connection[Any], last: int, advance: Callable[[int], None]) -> None:
        """Read up to batch `last`. `advance` is called with the number of sessions that were read."""
        saved = time.monotonic()
        for batches in ranges(connection, self._left(last)):
            with snapshot(connection):
                for lane in self._scope.lanes_of(batches):
                    self._read_lane(connection, batches, lane)
            self._state.next_batch = batches.last + 1
            advance(batches.sessions)
            if time.monotonic() - saved > SAVE_S:
                self._save()
                saved = time.monotonic()
        self._save()

    def _left(self, last: int) -> list[tuple[int, int]]:
        """Return the ranges that are still to be read. Batches committed since the scope was frozen belong to the newest range."""
        kept = [*self._scope.kept[:-1], (self._scope.last_kept_from, last)]
        return [
            (max(begin, self._state.next_batch), end) for begin, end in kept if end >= self._state.next_batch
        ]

    def _read_lane(self, connection: psycopg.Connection[Any], batches: AuditedRange, lane: int) -> None:
        passed: dict[int, Passed] = {}
        batch, number = 0, 0
        with connection.cursor(name="audit_rows", binary=True) as cursor:
            cursor.itersize = _FETCH_ROWS
            cursor.execute(
                _ROWS["of_lane"],
                {"lane": lane, "from_batch": batches.first, "to_batch": batches.last},
            )
            for *columns, parked_after, requeued in cursor:
                row = Row(*columns)
                number = number + 1 if row.batch_id == batch else 0
                batch = row.batch_id
                epoch = self._scope.epoch_of(batch)
                if epoch is None:
                    continue
                if epoch not in passed:
                    seq, reached = self._reached.get((epoch, lane), (0, {}))
                    deliveries = _deliveries(connection, epoch, lane, seq, batch, self._state.malformed)
                    passed[epoch] = Passed(deliveries, seq, reached)
                at = Cursor(batch, row.session_key)
                bounds, before = passed[epoch].delivery_of(at)
                marks = self._marks(epoch, lane, at) if parked_after is None else self._parked(requeued)
                copies = min(255, self._scope.copies(epoch, lane, at, parked_after))
                self._keep(row, lane, number, marks, copies, bounds, before)
        for epoch, each in passed.items():
            self._reached[(epoch, lane)] = (each.seq, each.before)

    def _keep(
        self,
        row: Row,
        lane: int,
        number: int,
        marks: Mark,
        copies: int,
        bounds: SentOffsets | None,
        before: SentOffsets,
    ) -> None:
        own_key = row.session_key.encode()
        session_key = short_hash(own_key, self._seed)
        try:
            outputs = list(records(row))
        except ValueError:
            # The publisher parks such a row when it reaches it. So if its lane has passed this row, the row was damaged later.
            if marks & Mark.DEMANDED:
                self._state.counted["unreadable_rows"] = self._state.counted.get("unreadable_rows", 0) + 1
            return
        events = iter(enumerate(outputs))
        for topic_id, partition, end, count in zip(
            row.session_topic_ids, row.session_partitions, row.session_ends, row.session_outputs, strict=True
        ):
            bucket = bucket_of(f"{topic_id}/{partition}/{end}".encode(), self._spill.buckets, self._seed)
            for _ in range(count):
                event, output = next(events)
                found = marks if output.value is not None else marks | Mark.TOMBSTONE
                if marks & Mark.DEMANDED:
                    found |= self.retained(output.topic, output.partition, bounds, before)
                outbox_id: Any = output.headers[0][1]
                self._spill.append(
                    bucket,
                    EXPECTED.pack(
                        identity_of(outbox_id, row.revision),
                        content_of(output.key, output.value, [h for h in output.headers if is_own(h[0])]),
                        session_key,
                        session_key if output.key == own_key else short_hash(output.key or b"", self._seed),
                        row.batch_id,
                        lane,
                        number,
                        event,
                        self._topic(output.topic),
                        output.partition,
                        NONE if output.timestamp_ms == SENT_NOW else output.timestamp_ms,
                        found,
                        copies,
                    ),
                )

    def _topic(self, name: str) -> int:
        number = self._topics.get(name)
        if number is None:
            number = self._topics[name] = len(self._topics)
            self._state.topics.append(name)
        return number

    def _marks(self, epoch: int, lane: int, row: Cursor) -> Mark:
        marks = Mark.DEMANDED if self._scope.delivered(epoch, lane, row) else Mark(0)
        if not self._scope.to_end or row.batch_id < self._scope.last_kept_from:
            marks |= Mark.LATER_UNKNOWN
        for resume in self._scope.resumes:
            marks = _resumed(marks, resume, epoch, lane, row)
        return marks

    def _parked(self, requeued: int | None) -> Mark:
        if requeued is None or self._scope.reads(requeued):
            return Mark.PARKED
        return Mark.PARKED | Mark.REQUEUED_ELSEWHERE

    def retained(self, topic: str, partition: int, bounds: SentOffsets | None, before: SentOffsets) -> Mark:
        """Return EXPIRED or BOUNDARY if the topic has deleted, or may have deleted, an output. `bounds`: the offsets of its delivery."""
        lows = self._lows.get(topic)
        if not lows or not any(lows.values()):
            return Mark(0)
        if bounds is None or topic not in bounds:
            # The delivery's offsets are unknown, but they are above those of the lane's earlier deliveries.
            sent = before.get(topic, {})
            partitions = {str(partition)} & lows.keys() or lows.keys()
            safe = all(lows[p] == 0 or (p in sent and sent[p][1] >= lows[p]) for p in partitions)
            return Mark(0) if safe else Mark.BOUNDARY
        sent = bounds[topic]
        if str(partition) in sent:
            sent = {str(partition): sent[str(partition)]}
        if all(last < lows.get(p, 0) for p, (_, last) in sent.items()):
            return Mark.EXPIRED
        if all(first >= lows.get(p, 0) for p, (first, _) in sent.items()):
            return Mark(0)
        return Mark.BOUNDARY

    def _save(self) -> None:
        self._state.expected_sizes = self._spill.flush()
        states.save(self._folder, self._state)


class Passed:
    """Reads the deliveries of a lane alongside its rows, both in order. `seq`: the delivery of the last row. `before`: the newest offset
    that earlier deliveries wrote in each topic partition."""

    def __init__(
        self,
        deliveries: Iterator[tuple[int, Cursor | None, Cursor, SentOffsets | None]],
        seq: int,
        before: SentOffsets,
    ) -> None:
        self.seq = seq
        self.before = before
        self._rows = deliveries
        self._ahead: deque[tuple[int, Cursor | None, Cursor, SentOffsets | None]] = deque()

    def delivery_of(self, row: Cursor) -> tuple[SentOffsets | None, SentOffsets]:
        """Return the offsets of the delivery that sent a row, and the newest earlier offsets in each topic partition."""
        while True:
            if not self._ahead:
                following = next(self._rows, None)
                if following is None:
                    return None, self.before
                self._ahead.append(following)
            seq, after, end, bounds = self._ahead[0]
            if after is not None and row <= after:
                # The row's delivery was pruned.
                return None, self.before
            if row <= end:
                self.seq = seq
                return bounds, self.before
            for topic, partitions in (bounds or {}).items():
                self.before[topic] = self.before.get(topic, {}) | partitions
            self._ahead.popleft()


def _deliveries(
    connection: psycopg.Connection[Any],
    epoch: int,
    lane: int,
    from_seq: int,
    from_batch: int,
    findings: list[str],
) -> Iterator[tuple[int, Cursor | None, Cursor, SentOffsets | None]]:
    while True:
        rows = connection.execute(
            _DELIVERIES["of_lane"],
            {
                "epoch": epoch,
                "lane": lane,
                "from_seq": from_seq,
                "from_batch": from_batch,
                "deliveries": _DELIVERIES_AT_ONCE,
            },
        ).fetchall()
        for seq, after_batch, after_key, to_batch, to_key, offsets in rows:
            after = None if after_batch is None else Cursor(after_batch, after_key)
            found = read_sent_offsets(offsets)
            if isinstance(found, str):
                finding = malformed(epoch, lane, seq, found)
                if finding not in findings and len(findings) < _MOST_MALFORMED:
                    findings.append(finding)
                found = None
            yield seq, after, Cursor(to_batch, to_key), found
        if len(rows) < _DELIVERIES_AT_ONCE:
            return
        from_seq = rows[-1][0] + 1


def _resumed(marks: Mark, resume: RecordedResume, epoch: int, lane: int, row: Cursor) -> Mark:
    """Return an output's marks after a resume. A resume that moves the lane back demands again what an earlier resume skipped."""
    if (resume.epoch, resume.lane) != (epoch, lane):
        return marks
    if resume.to < row <= resume.after:
        return marks & ~Mark.SKIPPED
    if resume.after < row <= resume.to:
        return marks | Mark.SKIPPED
    return marks
