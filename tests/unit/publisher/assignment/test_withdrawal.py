"""A process leaves its lanes to others only when it delivers nothing while they do, and comes back later."""

from dataclasses import replace

import pytest
from confluent_kafka import KafkaError, KafkaException

from publisher.assignment.withdrawal import KafkaProbe, Withdrawal
from publisher.monitoring.readiness import LaneSnapshot

FAILING = LaneSnapshot(1, 0, "retrying", "Kafka: no brokers", 5.0, 7)
RUNNING = replace(FAILING, lane=1, state="running", reason="")
STOPPED = replace(FAILING, lane=2, state="stopped", reason="output_topic_missing: out")
DENIED = replace(FAILING, lane=2, state="stopped", reason="not_authorised: topic out")
LOGIN = replace(DENIED, reason="not_authorised: SASL authentication failed", login_refused=True)
OPENING = replace(FAILING, lane=3, state="opening", reason="", seq=None)
PATIENCE_S = 40.0


class Process:
    """One that looks once a second; `look` repeats a look for so many seconds."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.delivered_at: float | None = None
        self.withdrawal = Withdrawal(PATIENCE_S, lambda: self.now)

    def look(
        self,
        seconds: float,
        *lanes: LaneSnapshot,
        others: bool = True,
        delivers: bool = True,
        only_others_reach_kafka: bool = False,
    ) -> str | None:
        """`delivers`: whether another process does meanwhile; `only_others_reach_kafka`: whether only one without lanes does."""
        until = self.now + seconds
        while self.now < until:
            self.now += 1.0
            self.delivered_at = self.now - 0.5 if delivers else self.delivered_at
            self.withdrawal.look(
                lanes,
                others=others,
                delivered_s_ago=self._delivered_s_ago,
                only_others_reach_kafka=lambda: only_others_reach_kafka,
            )
        return self.withdrawal.reason

    def _delivered_s_ago(self) -> float | None:
        return None if self.delivered_at is None else self.now - self.delivered_at


@pytest.mark.guarantee(101)
@pytest.mark.parametrize(
    "lanes", [(FAILING, FAILING), (LOGIN, LOGIN), (LOGIN, FAILING)], ids=["no Kafka", "login", "both"]
)
def test_it_withdraws_once_others_have_delivered_for_as_long_as_an_attempt_takes(
    lanes: tuple[LaneSnapshot, ...],
) -> None:
    process = Process()
    assert process.look(PATIENCE_S, *lanes) is None
    reason = process.look(2, *lanes)
    assert reason is not None
    assert "while other processes did" in reason
    assert lanes[0].reason in reason


def test_a_login_that_is_refused_to_everybody_moves_no_lane() -> None:
    assert Process().look(10 * PATIENCE_S, LOGIN, delivers=False) is None


def test_it_withdraws_where_kafka_answers_only_a_process_without_lanes() -> None:
    process = Process()
    lost = {"delivers": False, "only_others_reach_kafka": True}
    assert process.look(PATIENCE_S, FAILING, **lost) is None
    # Both reach it for a moment, or neither does: no reason to move a lane.
    assert process.look(1, FAILING, delivers=False) is None
    assert process.look(PATIENCE_S, FAILING, **lost) is None
    reason = process.look(2, FAILING, **lost)
    assert reason is not None
    assert "while other processes can" in reason
    assert Process().look(10 * PATIENCE_S, FAILING, RUNNING, **lost) is None


@pytest.mark.parametrize(
    "lanes",
    [(FAILING, RUNNING), (FAILING, STOPPED), (STOPPED,), (LOGIN, RUNNING), (DENIED,), (OPENING,), ()],
    ids=["one delivers", "one is stopped", "stopped", "a login, one delivers", "a right", "opening", "none"],
)
def test_it_stays_while_one_lane_does_not_fail(lanes: tuple[LaneSnapshot, ...]) -> None:
    assert Process().look(10 * PATIENCE_S, *lanes) is None


def test_it_stays_where_nobody_else_lives() -> None:
    assert Process().look(10 * PATIENCE_S, FAILING, others=False) is None


def test_it_stays_through_an_outage_that_is_everybodys() -> None:
    process = Process()
    process.look(60, RUNNING)
    assert process.look(3_600, FAILING, delivers=False) is None
    # The others are back first, and this process within an attempt.
    assert process.look(PATIENCE_S - 1, FAILING) is None
    assert process.look(60, RUNNING) is None
    # What others delivered for a moment counts for nothing later.
    assert process.look(10, FAILING) is None
    assert process.look(3_600, FAILING, delivers=False) is None


def test_it_comes_back_by_itself_later_each_time_and_at_once_where_the_others_are_gone() -> None:
    process = Process()
    away_s = []
    for _ in range(3):
        assert process.look(PATIENCE_S + 2, FAILING) is not None
        since = process.now
        while process.look(1) is not None:
            assert process.now - since < 1_000
        away_s.append(process.now - since)
    assert 30 <= away_s[0] <= 61
    assert away_s[2] > 61
    assert process.look(PATIENCE_S + 2, FAILING) is not None
    assert process.look(1, others=False) is None


def test_an_error_of_a_broker_is_an_answer_and_kafka_is_not_asked_at_every_look() -> None:
    now, asked = 100.0, 0
    probe = KafkaProbe(lambda: now)

    def failing(code: int) -> str | None:
        def ask() -> None:
            nonlocal asked
            asked += 1
            raise KafkaException(KafkaError(code))

        return probe.failure(ask)

    assert failing(KafkaError.UNKNOWN_TOPIC_OR_PART) is None
    assert failing(KafkaError._TIMED_OUT) is None
    assert asked == 1
    now += 3.0
    found = failing(KafkaError._TIMED_OUT)
    assert found is not None
    assert "Kafka does not answer this process" in found
    now += 3.0
    assert probe.failure(lambda: None) is None
