"""One lane at a time holds a large row, and each gets its turn."""

import threading

from publisher.delivery.large_row_turns import LargeRowTurns


def test_lanes_get_their_turn_in_the_order_in_which_they_asked() -> None:
    turns = LargeRowTurns()
    assert turns.take("a", 0)
    assert turns.take("a", 0), "it has it"
    assert not turns.take("b", 0)
    assert not turns.take("c", 0)
    turns.end("a")
    assert not turns.take("a", 0), "others asked before"
    assert not turns.take("c", 0)
    assert turns.take("b", 0)
    turns.end("c")  # it has left
    turns.end("b")
    assert turns.take("a", 0)


def test_a_lane_that_waits_is_woken() -> None:
    turns, got = LargeRowTurns(), threading.Event()
    assert turns.take("a", 0)

    def wait() -> None:
        if turns.take("b", 90):
            got.set()

    thread = threading.Thread(target=wait)
    thread.start()
    turns.end("a")
    thread.join(90)
    assert got.is_set()


def test_a_turn_that_does_not_end_is_over_once_others_have_waited() -> None:
    turns = LargeRowTurns(lasts_s=0.0)
    assert turns.take("hangs", 0)
    assert turns.take("waits", 0.01)
    turns.end("hangs")  # it wakes up: the turn is another's by now
    assert turns.take("waits", 0)
