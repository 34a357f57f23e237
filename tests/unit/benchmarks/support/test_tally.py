"""Counting what a topic holds: missing, there twice, out of order and altered events, each told from the others."""

import pytest

from benchmarks.support.outbox import EVENTS, TOPIC_ID, value_of, values_of
from benchmarks.support.tally import Tally

FIRST, SESSIONS = 7, 3


def add(
    tally: Tally, session: int, index: int, *, key: bytes | None = None, value: bytes | None = None
) -> bool:
    event_id = f"{TOPIC_ID}/0/{session * 102 + 101}/{index}".encode()
    return tally.add(event_id, key or b"session-%010d" % session, value or value_of(session, index))


def counts(tally: Tally) -> tuple[int, int, int, int]:
    return tally.missing, tally.duplicates, tally.out_of_order, tally.altered


@pytest.fixture
def tally() -> Tally:
    """Everything has come once and in order, the sessions mixed."""
    tally = Tally(FIRST, SESSIONS)
    for index in range(EVENTS):
        for session in range(FIRST, FIRST + SESSIONS):
            assert add(tally, session, index)
    return tally


def test_each_event_once_and_in_order_is_all_there_is_to_deliver(tally: Tally) -> None:
    assert counts(tally) == (0, 0, 0, 0)
    assert tally.delivered == tally.expected == SESSIONS * EVENTS


def test_what_did_not_come_is_missing() -> None:
    tally = Tally(FIRST, SESSIONS)
    for index in range(1, EVENTS):
        add(tally, FIRST, index)
    assert counts(tally) == (2 * EVENTS + 1, 0, 0, 0)


def test_an_event_that_comes_again_is_a_duplicate_and_neither_new_nor_out_of_order(tally: Tally) -> None:
    assert not add(tally, FIRST + 1, 0)
    assert not add(tally, FIRST + 1, 0)
    assert counts(tally) == (0, 2, 0, 0)


def test_an_event_that_first_comes_after_a_later_one_of_its_key_is_out_of_order() -> None:
    tally = Tally(FIRST, SESSIONS)
    for session, index in ((FIRST, 0), (FIRST, 3), (FIRST + 1, 0), (FIRST, 1), (FIRST, 2), (FIRST, 4)):
        add(tally, session, index)
    assert tally.out_of_order == 2


@pytest.mark.parametrize(
    ("key", "value"),
    [(b"session-0000000008", None), (None, b"other"), (None, value_of(FIRST + 1, 0))],
    ids=["another session's key", "another value", "another session's value"],
)
def test_an_event_with_another_key_or_value_is_altered(key: bytes | None, value: bytes | None) -> None:
    tally = Tally(FIRST, SESSIONS)
    add(tally, FIRST, 0, key=key, value=value)
    assert (tally.delivered, tally.altered) == (1, 1)


@pytest.mark.parametrize(
    "event_id",
    [
        b"None",
        b"",
        f"{TOPIC_ID}/0/{FIRST * 102 + 100}/0".encode(),
        f"{TOPIC_ID}/1/{FIRST * 102 + 101}/0".encode(),
        f"{TOPIC_ID}/0/{(FIRST - 1) * 102 + 101}/0".encode(),
        f"{TOPIC_ID}/0/{(FIRST + SESSIONS) * 102 + 101}/0".encode(),
        f"{TOPIC_ID}/0/{FIRST * 102 + 101}/{EVENTS}".encode(),
        f"{TOPIC_ID}/0/{FIRST * 102 + 101}/-1".encode(),
        f"{'B' * 22}/0/{FIRST * 102 + 101}/0".encode(),
    ],
)
def test_an_event_that_was_never_to_be_sent_is_altered_and_not_delivered(event_id: bytes) -> None:
    tally = Tally(FIRST, SESSIONS)
    assert not tally.add(event_id, b"session-%010d" % FIRST, value_of(FIRST, 0))
    assert (tally.delivered, tally.altered) == (0, 1)


def test_one_value_is_that_of_the_whole_session() -> None:
    assert [value_of(FIRST, index) for index in range(EVENTS)] == values_of(FIRST)
    assert len(set(values_of(FIRST))) == EVENTS


def test_content_that_is_not_checked_is_counted_all_the_same() -> None:
    tally = Tally(FIRST, SESSIONS, checks_content=False)
    assert add(tally, FIRST, 0, value=b"other")
    assert (tally.delivered, tally.altered) == (1, 0)
