"""What happened in the synthetic week. Pure: every number follows from a slot's.

The input is cut into slots of 102 offsets, dealt out to its partitions in turn. A slot holds a session, or every 101st time the events of a
dead letter. Batches take slots in order, so ledger, rows, letters and deliveries agree by construction.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

INPUT_TOPIC, INPUT_TOPIC_ID = "session-events", "Qm9uZVdlZWtPZkhpc3Rvcg"
INPUT_PARTITIONS = 8
SLOT_EVENTS = 102
LETTER_EVERY = 101
OUTPUT_EVENTS = 20
WEEK = timedelta(days=7)
REASONS = ("malformed", "no_start", "restarted", "timed_out", "transform_failed", "too_large")

OPEN_SLOTS = 3 * INPUT_PARTITIONS
"""Slots whose sessions are open at the end of a batch."""


@dataclass(frozen=True, slots=True)
class Generation:
    """One generation: why it was opened, and the first of its stream batches."""

    number: int
    reason: str
    restored: str
    first_batch: int


@dataclass(frozen=True, slots=True)
class Batch:
    """One ledger row. Stream: the slots `first` to `last`, exclusive. Retry: `letters`. Requeue: `parked`, numbers of slots."""

    batch_id: int
    kind: str
    generation: int
    spark_batch: int | None
    first: int
    last: int
    created_at: datetime
    letters: tuple[int, ...] = ()
    parked: tuple[int, ...] = ()

    @property
    def commit_id(self) -> UUID:
        """The ledger row's random id, here its number."""
        return UUID(int=self.batch_id)

    def sessions(self) -> list[int]:
        """The slots of its sessions, in the order of the input."""
        if self.kind == "stream":
            return [slot for slot in range(self.first, self.last) if not is_letter(slot)]
        return [*self.letters, *self.parked]

    def dead_letters(self) -> range:
        """The slots of its dead letters."""
        # The smallest s >= first with s % LETTER_EVERY == LETTER_EVERY - 1.
        return range(self.first + (LETTER_EVERY - 1 - self.first) % LETTER_EVERY, self.last, LETTER_EVERY)


@dataclass(frozen=True, slots=True)
class Week:
    """The whole plan."""

    batches: list[Batch]
    generations: list[Generation]
    lane_epochs: list[tuple[int, int, int]]
    """(epoch, from_batch, lanes)."""
    parked: dict[int, tuple[int, str]]
    """{slot: (batch, state)} of the rows that Kafka refused."""
    outage: range
    """Batches that were committed while Kafka was away: delivered after it, in full transactions cut between rows."""

    @property
    def sessions(self) -> int:
        """Sessions in the rows, copies and retries included."""
        return sum(len(batch.sessions()) for batch in self.batches)

    def epoch_of(self, batch_id: int) -> tuple[int, int, int]:
        """(epoch, from_batch, lanes) of a batch."""
        return next(epoch for epoch in reversed(self.lane_epochs) if epoch[1] <= batch_id)


def is_letter(slot: int) -> bool:
    """Whether the events of a slot became a dead letter."""
    return slot % LETTER_EVERY == LETTER_EVERY - 1


def reason_of(slot: int) -> str:
    """The reason of a slot's dead letter: mostly malformed and orphans, rarely too large."""
    n = slot // LETTER_EVERY
    if n % 500 == 499:
        return "too_large"
    return REASONS[(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4)[n % 20]]


def key_of(slot: int) -> bytes:
    """The session key: all over the key space in the order of time, as uuids are. Every fiftieth is of somebody who comes again."""
    n = slot - 40_001 if slot % 50 == 7 and slot > 40_001 else slot
    return b"sess-%016x" % (n * 0x9E3779B97F4A7C15 % 2**64)


def partition_of(slot: int) -> int:
    """The input partition."""
    return slot % INPUT_PARTITIONS


def start_of(slot: int) -> int:
    """The offset of a slot's first event."""
    return slot // INPUT_PARTITIONS * SLOT_EVENTS


def offsets_at(slot: int) -> dict[str, dict[str, int]]:
    """The offsets before a slot, a multiple of the partitions' number, in each partition."""
    return {INPUT_TOPIC_ID: {str(partition): start_of(slot) for partition in range(INPUT_PARTITIONS)}}


def open_at(slot: int) -> dict[str, dict[str, dict[str, int | str]]]:
    """What is open before a slot."""
    safe = start_of(max(0, slot - OPEN_SLOTS))
    if safe == start_of(slot):
        return {}
    sessions = OPEN_SLOTS // INPUT_PARTITIONS
    one: dict[str, int | str] = {"safe": safe, "sessions": sessions, "events": 50 * sessions}
    one |= {"bytes": 7_500 * sessions, "digest": "0" * 24}
    return {INPUT_TOPIC_ID: {str(partition): one for partition in range(INPUT_PARTITIONS)}}


def plan(sessions: int, end: datetime) -> Week:
    """Plan about so many sessions, the newest batch at `end`. Batches of 250 to 750 sessions, evenly over the week."""
    slots = sessions * LETTER_EVERY // (LETTER_EVERY - 1)
    cuts = [*_cuts(slots)]
    generations, starts = [], {}
    for number, (reason, restored) in enumerate(_GENERATIONS):
        starts[number * len(cuts) // len(_GENERATIONS)] = (number + 1, reason, restored)
    repairs = {
        len(cuts) * part // 10: kind
        for part, kind in ((3, "retry"), (5, "requeue"), (7, "retry"), (8, "retry"))
    }
    interval = WEEK / (len(cuts) + len(repairs) - 1)
    batches: list[Batch] = []
    parked: dict[int, tuple[int, str]] = {}
    failed: list[int] = []
    generation, spark_batch, to_park = 0, 0, len(cuts) // 16
    for n, (first, last) in enumerate(cuts):
        batch_id = len(batches) + 1
        at = end - WEEK + interval * (batch_id - 1)
        if n in starts:
            generation, reason, restored = starts[n]
            generations.append(Generation(generation, reason, restored, batch_id))
            spark_batch = 0
        batch = Batch(batch_id, "stream", generation, spark_batch, first, last, at)
        batches.append(batch)
        spark_batch += 1
        failed += [slot for slot in batch.dead_letters() if reason_of(slot) == "transform_failed"]
        if n % to_park == to_park // 2:
            slot = next(slot for slot in range((first + last) // 2, last) if not is_letter(slot))
            parked[slot] = (batch_id, "discarded" if len(parked) % 3 == 2 else "parked")
        if n in repairs:
            again = [slot for slot, (_, state) in parked.items() if state == "parked"][:4]
            chosen = failed[-400:] if repairs[n] == "retry" else again
            batch_id, at = batch_id + 1, at + interval
            repair = (tuple(chosen), ()) if repairs[n] == "retry" else ((), tuple(chosen))
            batches.append(Batch(batch_id, repairs[n], generation, None, last, last, at, *repair))
            failed = []
            if repairs[n] == "requeue":
                parked |= {slot: (parked[slot][0], "requeued") for slot in chosen}
    change = len(batches) * 4 // 10
    outage = len(batches) * 6 // 10
    epochs = [(1, 1, 4), (2, change, 8)]
    return Week(batches, generations, epochs, parked, range(outage, outage + max(1, len(batches) // 168)))


_GENERATIONS = (
    ("first", "fresh"),
    ("new_topic", "new_generation"),
    ("savepoint", "savepoint"),
    ("data_loss", "new_generation"),
    ("changed_assembly", "new_generation"),
)


def _cuts(slots: int) -> Iterator[tuple[int, int]]:
    first, n = 0, 0
    while first < slots:
        size = (256 + n * 7919 % 496) // INPUT_PARTITIONS * INPUT_PARTITIONS
        last = min(first + size, (slots + INPUT_PARTITIONS - 1) // INPUT_PARTITIONS * INPUT_PARTITIONS)
        yield first, last
        first, n = last, n + 1
