"""What a history has left in the outbox, compared with what it had to leave."""

from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import orjson
from psycopg.rows import dict_row

from spark_job.input.offsets import Offsets, TopicPartition
from tests.support.histories.expected_outbox import Letter, as_offsets
from tests.support.histories.history import History, Row, values_of
from tests.support.reference.model import ExpectedSession


def wrong(history: History) -> list[str]:
    """What differs from what had to come of it."""
    return [*wrong_outputs(history), *wrong_letters(history), *wrong_ledger(history)]


def wrong_outputs(history: History) -> list[str]:
    """Each session of each generation once, whole, with its outputs, byte for byte."""
    expected: Counter[Any] = Counter()
    for of, where, sessions, _ in outcomes(history):
        for each in sessions:
            if (values := encoded_values(each)) is not None:
                expected[*of, where, each.key, each.start_offset, each.end_offset, values] += 1
    return differences("session", expected, Counter(history.sessions_written()))


def wrong_letters(history: History) -> list[str]:
    """Each letter of each generation once, with its events; open unless something newer speaks for them."""
    expected: Counter[Any] = Counter()
    for of, where, sessions, letters in outcomes(history):
        for letter in letters:
            expected[*of, where, *letter] += 1
        for each in sessions:
            if encoded_values(each) is None:
                raws = tuple(event.raw for event in each.events)
                offsets = (each.start_offset, each.last_offset, each.closing_offset)
                expected[*of, where, *offsets, "transform_failed", len(raws), raws] += 1
    written = history.letters_written()
    found = Counter(
        (
            *(row["generation"], row["revision"], (row["topic_id"], row["partition"])),
            *(row["first_offset"], row["last_offset"], row["closing_offset"], row["reason"]),
            *(row["event_count"], tuple(row["event_values"])),
        )
        for row in written
    )
    return differences("letter", expected, found) + wrong_states(history, written)


def wrong_states(history: History, letters: list[Row]) -> list[str]:
    """A letter is resolved exactly where a later generation says the same events' outputs, or judges them again."""
    sessions = list(history.sessions_written())
    found = []
    for old in letters:
        place = old["topic_id"], old["partition"]
        kept = old["event_offsets"]
        # A dropped duplicate behind the last event is in no session.
        last_event = kept[-1] if len(kept) == old["event_count"] else old["last_offset"]
        covered = old["reason"] != "malformed" and any(
            (where, key) == (place, old["session_key"])
            and (generation > old["generation"] and revision >= old["revision"])
            and (first <= old["first_offset"] and last >= last_event)
            for generation, revision, where, key, first, last, _ in sessions
        )
        again = any(
            (new["topic_id"], new["partition"], new["session_key"]) == (*place, old["session_key"])
            and new["revision"] > old["revision"]
            and (new["first_offset"] <= old["first_offset"] and new["last_offset"] >= old["last_offset"])
            for new in letters
        )
        if (old["state"] == "resolved") != (covered or again):
            found.append(f"letter is {old['state']}: {old}")
    return found


def wrong_ledger(history: History) -> list[str]:
    """Without a gap: each row begins where the one before ends, and each generation where it had to."""
    with history.observer.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(
            "SELECT b.*, r.generation AS run_generation FROM outbox.batch b JOIN outbox.run r USING (run_id) ORDER BY batch_id"
        ).fetchall()
    found = []
    if [row["batch_id"] for row in rows] != list(range(1, len(rows) + 1)):
        found.append("batch ids have gaps")
    for number, generation in enumerate(history.expected.generations, 1):
        at, end = as_offsets(generation.start), as_offsets(generation.position)
        of = [row for row in rows if row["generation"] == number]
        for (run_id, spark_batch), parts in groupby(of, lambda row: (row["run_id"], row["spark_batch"])):
            same = list(parts)
            first = same[0]
            if [row["part"] for row in same] != list(range(len(same))):
                found.append(f"parts of batch {first['batch_id']} ({run_id}, {spark_batch})")
            if Offsets.from_json(first["start_offsets"]).differences(at):
                found.append(f"batch {first['batch_id']} begins at {first['start_offsets']}, not at {at}")
            at = Offsets.from_json(first["end_offsets"])
            if any(
                (row["end_offsets"], row["open_state"]) != (first["end_offsets"], first["open_state"])
                for row in same
            ):
                found.append(f"the parts of batch {first['batch_id']} differ")
            if any(row["run_generation"] != number for row in same):
                found.append(f"batch {first['batch_id']} is of another generation than its run")
        if at.differences(end):
            found.append(f"generation {number} ends at {at}, not at {end}")
    return found


def outcomes(
    history: History,
) -> Iterator[tuple[tuple[int, int], TopicPartition, list[ExpectedSession], list[Letter]]]:
    """((generation, revision), partition, its sessions, its letters)."""
    for number, generation in enumerate(history.expected.generations, 1):
        for where, sessions, letters in generation.outcomes():
            yield (number, generation.revision), where, sessions, letters


def encoded_values(session: ExpectedSession) -> tuple[bytes, ...] | None:
    """The values of a session's outputs; None where the transform fails."""
    offsets, raws = [each.offset for each in session.events], [each.raw for each in session.events]
    try:
        found = values_of(session.key, offsets, raws, f"part {session.part}, {session.ended_by}")
    except ValueError:
        return None
    return tuple(each.value if isinstance(each.value, bytes) else orjson.dumps(each.value) for each in found)


def differences(what: str, expected: Counter[Any], found: Counter[Any]) -> list[str]:
    return [
        *(f"{what} missing: {each}" for each in expected - found),
        *(f"{what} too many: {each}" for each in found - expected),
    ]
