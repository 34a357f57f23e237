"""Random input for the histories: every kind of event that a topic may hold, in one to three partitions."""

import random

import orjson

from tests.reference.model import Record


def random_log(chance: random.Random) -> list[list[Record]]:
    """Records of one to three partitions: few keys used again and again, duplicates, restarts, orphans, silences, some not JSON."""
    log: list[list[Record]] = [[] for _ in range(chance.randint(1, 3))]
    open_now: set[tuple[int, str]] = set()
    now_s = 0

    def add(partition: int, key: str, kind: str, at_s: int, body: int) -> None:
        value = orjson.dumps({"session_key": key, "event_type": kind, "body": body})
        log[partition].append(Record(partition, len(log[partition]), at_s * 1_000, None, value))

    for _ in range(chance.randint(20, 120)):
        now_s += chance.choice(
            [0, 1, 1, 2, 5, 5, chance.choice([30, 90, 200]) if chance.random() < 0.1 else 1]
        )
        place = partition, key = chance.randrange(len(log)), f"k{chance.randrange(6)}"
        at_s = 1_000 + now_s + chance.randint(-5, 5)
        if place in open_now:
            (kind,) = chance.choices(["start_event", "entry_event", "end_event"], [1, 6, 4])
        else:
            kind = "start_event" if chance.random() < 0.85 else chance.choice(["entry_event", "end_event"])
        if kind == "start_event":
            open_now.add(place)
        elif kind == "end_event":
            open_now.discard(place)
        body = (
            chance.randrange(3) if kind != "start_event" or chance.random() < 0.5 else chance.randrange(10**6)
        )
        add(partition, key, kind, at_s, body)
        if chance.random() < 0.1:
            add(partition, key, kind, at_s, body)
        if kind == "start_event" and chance.random() < 0.2:
            add(partition, key, "entry_event", at_s, 0)
            add(partition, key, "start_event", at_s + 1, body)
        if chance.random() < 0.03:
            log[partition].append(Record(partition, len(log[partition]), at_s * 1_000, None, b"\xff no JSON"))
    return log
