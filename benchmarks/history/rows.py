"""The rows of the week in COPY's binary format, and what the deliveries will have to say of them."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from benchmarks.history.week import (
    INPUT_TOPIC_ID,
    OUTPUT_EVENTS,
    SLOT_EVENTS,
    Batch,
    key_of,
    partition_of,
    start_of,
)
from db.session_keys import lane_hash
from spark_job.assembly import pgcopy

OUTPUT_PARTITIONS = 4
CLICKS, FUNNEL, SESSIONS, EXITS, ORDERS = (
    "shop.clicks",
    "shop.funnel",
    "shop.sessions",
    "shop.exits",
    "shop.orders",
)
"""Every session has 12, 6 and 1 outputs for the first three, and the last for one of the other two: every twentieth bought something."""

_HEX = b"@" * 16


@dataclass(slots=True)
class Sent:
    """What one Kafka transaction carries: by output partition, sessions, and those that bought something."""

    sessions: Counter[int] = field(default_factory=Counter)
    orders: Counter[int] = field(default_factory=Counter)

    def add(self, slot: int, hashed: int) -> None:
        """Count a session."""
        place = hashed // 1024 % OUTPUT_PARTITIONS
        self.sessions[place] += 1
        if has_order(slot):
            self.orders[place] += 1

    def events(self) -> Iterator[tuple[str, int, int]]:
        """Yield (topic, partition, output events)."""
        for place, count in sorted(self.sessions.items()):
            orders = self.orders[place]
            for topic, events in (
                (CLICKS, 12 * count),
                (FUNNEL, 6 * count),
                (SESSIONS, count),
                (EXITS, count - orders),
                (ORDERS, orders),
            ):
                if events:
                    yield topic, place, events


def has_order(slot: int) -> bool:
    """Whether the session's last output goes to the rare topic."""
    return slot % 20 == 3


def output_topics(slot: int) -> list[str]:
    """The topics of a session's outputs, in their order."""
    return [CLICKS] * 12 + [FUNNEL] * 6 + [SESSIONS, ORDERS if has_order(slot) else EXITS]


def _values() -> list[bytes]:
    return [b'{"n":%d,"session":"%b"}' % (n, _HEX) for n in range(OUTPUT_EVENTS)]


SESSION_BYTES = sum(map(len, _values()))
"""Bytes of a session's outputs."""


def _outputs(slot: int) -> bytes:
    """The fields from `topics` on, with a place for the key's digits."""
    topics = b"".join(pgcopy.data(topic.encode()) for topic in output_topics(slot))
    values = b"".join(map(pgcopy.data, _values()))
    arrays = [
        pgcopy.array(pgcopy.TEXT, OUTPUT_EVENTS, topics),
        pgcopy.array(pgcopy.BYTEA, OUTPUT_EVENTS, values),
    ]
    return b"".join(arrays) + pgcopy.NULL * 4


_WITH_ORDER, _WITHOUT = _outputs(3), _outputs(0)
_HEAD = pgcopy.count(18)
_TOPIC_IDS = pgcopy.array(pgcopy.TEXT, 1, pgcopy.data(INPUT_TOPIC_ID.encode()))
_COUNTS = pgcopy.array(pgcopy.INT4, 1, pgcopy.int4(SLOT_EVENTS)) + pgcopy.array(
    pgcopy.INT4, 1, pgcopy.int4(OUTPUT_EVENTS)
)


def copied(batch: Batch, lanes: int, put_aside: set[int], sent: list[Sent]) -> Iterator[bytes]:
    """Yield the batch's rows, in key order as the sink writes them; count in `sent`, by lane, those that are not put aside."""
    now_ms = int(batch.created_at.timestamp() * 1000)
    for key, slot in sorted((key_of(slot), slot) for slot in batch.sessions()):
        hashed = lane_hash(key)
        lane, start = hashed % lanes, start_of(slot)
        if slot not in put_aside:
            sent[lane].add(slot, hashed)
        ended_ms = now_ms - 500 - slot % 400
        fields = [
            _HEAD,
            pgcopy.data(key),
            pgcopy.int8(batch.batch_id),
            pgcopy.int4(lane),
            pgcopy.int4(0),
            _TOPIC_IDS,
            pgcopy.array(pgcopy.INT4, 1, pgcopy.int4(partition_of(slot))),
            *(
                pgcopy.array(pgcopy.INT8, 1, pgcopy.int8(value))
                for value in (start, start + SLOT_EVENTS - 1, ended_ms - 1500, ended_ms)
            ),
            _COUNTS,
            (_WITH_ORDER if has_order(slot) else _WITHOUT).replace(_HEX, key[5:]),
        ]
        yield b"".join(fields)
