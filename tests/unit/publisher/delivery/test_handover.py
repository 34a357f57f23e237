"""A lane waits for its turn as long as the turn moves, and no longer."""

import threading
from collections.abc import Callable

import pytest

from publisher.delivery.handover import HandoverTurns, patience_s
from publisher.protocol.stop_reasons import HandoverStuckError
from service.observability.loops import Loops, unwatched

PATIENCE_S = 0.2


def in_thread(work: Callable[[], object]) -> list[BaseException]:
    """Run it to its end; return what it raised."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except HandoverStuckError as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive(), "it still waits"
    return raised


def test_a_lane_that_waits_for_one_that_hangs_gives_up_and_names_it() -> None:
    turns = HandoverTurns(PATIENCE_S)
    turns.take("lane 1/0", unwatched)
    (raised,) = in_thread(lambda: turns.take("lane 1/1", unwatched))
    assert "lane 1/0 of this process hangs" in str(raised)
    assert str(turns.stuck) == str(raised)
    turns.move(unwatched)
    assert not turns.stuck
    turns.end()
    assert turns.take("lane 1/1", unwatched) >= 0


class EndingTurns(HandoverTurns):
    """The turn ends when a lane that waits for it has just seen that it does not move."""

    looks = 0
    moved = 0

    @property
    def _moves(self) -> int:
        found = self.moved
        self.looks += 1
        # The holder's beginning and first move, the other one's beginning, and its look after its wait.
        if self.looks == 4:
            self.end()
        return found

    @_moves.setter
    def _moves(self, moves: int) -> None:
        self.moved = moves


def test_a_turn_that_ends_while_a_lane_gives_up_is_not_taken_for_one_that_hangs_for_ever() -> None:
    turns = EndingTurns(PATIENCE_S)
    turns.take("lane 1/0", unwatched)
    in_thread(lambda: turns.take("lane 1/1", unwatched))
    assert turns.looks > 4
    assert turns.stuck is None


def test_a_lane_waits_for_a_long_turn_that_moves() -> None:
    turns = HandoverTurns(PATIENCE_S)
    turns.take("lane 1/0", unwatched)
    pause, moves = threading.Event(), 10

    def hand_over() -> None:
        for _ in range(moves):
            pause.wait(PATIENCE_S / 2)
            turns.move(unwatched)
        turns.end()

    thread = threading.Thread(target=hand_over, daemon=True)
    thread.start()
    assert turns.take("lane 1/1", unwatched) > PATIENCE_S
    thread.join(30)


def test_whoever_hangs_in_its_turn_is_late_itself_and_whoever_waits_is_not_before_it() -> None:
    now = [100.0]
    loops = Loops(60, lambda: now[0])
    turns = HandoverTurns(3.0)
    with loops.loop("lane 1/0", 300) as holder:
        turns.take("lane 1/0", holder.turn)
        now[0] += 3.1
        assert holder.late_s() > 0
        turns.move(holder.turn)
        assert holder.late_s() < 0
        now[0] += 63.1
        (reason,) = loops.verdict().reasons
        assert "lane 1/0" in reason
        assert "hands rows to Kafka's client" in reason


@pytest.mark.parametrize(("lease_s", "wanted"), [(10.0, 10 / 3), (1.0, 1.0)])
def test_the_patience_is_a_part_of_the_lease(lease_s: float, wanted: float) -> None:
    assert patience_s(lease_s) == pytest.approx(wanted)
