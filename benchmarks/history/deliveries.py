"""The publisher's transactions of the week: one a batch and lane, full ones after the outage, and lanes that are not quite done. Pure."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from benchmarks.history.rows import Sent
from benchmarks.history.week import OUTPUT_EVENTS, Week, key_of
from db.session_keys import lane_hash
from publisher.protocol.cursor import Cursor

_FULL_TRANSACTION = 1_000


@dataclass(slots=True)
class Delivery:
    """One Kafka transaction. `offsets` are given once all are in the order of their commits."""

    epoch: int
    lane: int
    after: Cursor
    to: Cursor
    sent: Sent
    committed_at: datetime
    seq: int = 0
    offsets: str = "{}"
    """JSON, as in `outbox.delivery.kafka_offsets`."""

    @property
    def sessions(self) -> int:
        """Sessions that it sent."""
        return self.sent.sessions.total()

    @property
    def events(self) -> int:
        """Output events that it sent."""
        return self.sessions * OUTPUT_EVENTS


def deliveries(week: Week, sent: dict[int, list[Sent]]) -> list[Delivery]:
    """Return all, by time, with their Kafka offsets. `sent`: by batch and lane."""
    found: list[Delivery] = []
    for index, (epoch, from_batch, lanes) in enumerate(week.lane_epochs):
        is_newest = index == len(week.lane_epochs) - 1
        to_batch = len(week.batches) if is_newest else week.lane_epochs[index + 1][1] - 1
        for lane in range(lanes):
            last = to_batch - 2 - lane % 3 if is_newest else to_batch
            cut_in = last + 1 if is_newest and lane == 5 else None
            of_lane = [*_of_lane(week, sent, epoch, lane, range(from_batch, last + 1), cut_in)]
            for seq, delivery in enumerate(of_lane, 1):
                delivery.seq = seq
            found += of_lane
    found.sort(key=lambda delivery: (delivery.committed_at, delivery.lane))
    _give_offsets(found)
    return found


def _of_lane(
    week: Week, sent: dict[int, list[Sent]], epoch: int, lane: int, batches: range, cut_in: int | None
) -> Iterator[Delivery]:
    delay = timedelta(milliseconds=60 + 5 * lane)
    at = Cursor(batches.start - 1, None)
    for batch_id in batches:
        if batch_id in week.outage:
            if batch_id == week.outage.start:
                for delivery in _after_outage(week, epoch, lane, at):
                    at = delivery.to
                    yield delivery
            continue
        to = Cursor(batch_id, None)
        committed_at = week.batches[batch_id - 1].created_at + delay
        yield Delivery(epoch, lane, at, to, sent[batch_id][lane], committed_at)
        at = to
    if cut_in is not None:
        rows = _rows(week, lane, range(cut_in, cut_in + 1))
        if len(rows) > 1:
            half = rows[: len(rows) // 2]
            committed_at = week.batches[cut_in - 1].created_at + delay
            yield Delivery(epoch, lane, at, half[-1][0], _sum(half), committed_at)


def _after_outage(week: Week, epoch: int, lane: int, at: Cursor) -> Iterator[Delivery]:
    """Full transactions, cut between rows; the last ends with the outage's last batch."""
    rows = _rows(week, lane, week.outage)
    end = week.batches[week.outage.stop - 2].created_at
    for n, begin in enumerate(range(0, len(rows), _FULL_TRANSACTION)):
        chunk = rows[begin : begin + _FULL_TRANSACTION]
        is_last = begin + _FULL_TRANSACTION >= len(rows)
        to = Cursor(week.outage.stop - 1, None) if is_last else chunk[-1][0]
        yield Delivery(epoch, lane, at, to, _sum(chunk), end + timedelta(milliseconds=100 * n + lane))
        at = to


def _rows(week: Week, lane: int, batches: range) -> list[tuple[Cursor, int, int]]:
    """(place, slot, hash) of the lane's rows that were not put aside, in the cursor's order."""
    _, _, lanes = week.epoch_of(batches.start)
    found = []
    for batch_id in batches:
        for slot in week.batches[batch_id - 1].sessions():
            hashed = lane_hash(key := key_of(slot))
            if hashed % lanes == lane and week.parked.get(slot, (0,))[0] != batch_id:
                found.append((Cursor(batch_id, key.decode()), slot, hashed))
    return sorted(found, key=lambda row: (row[0].batch_id, row[0].session_key or ""))


def _sum(rows: list[tuple[Cursor, int, int]]) -> Sent:
    sent = Sent()
    for _, slot, hashed in rows:
        sent.add(slot, hashed)
    return sent


def _give_offsets(ordered: list[Delivery]) -> None:
    """Each topic partition's offsets in the order of the commits; a commit marker takes one after each transaction."""
    ends: dict[tuple[str, int], int] = {}
    for delivery in ordered:
        offsets: dict[str, dict[str, list[int]]] = {}
        for topic, partition, events in delivery.sent.events():
            first = ends.get((topic, partition), 0)
            offsets.setdefault(topic, {})[str(partition)] = [first, first + events - 1]
            ends[topic, partition] = first + events + 1
        delivery.offsets = json.dumps(offsets)
