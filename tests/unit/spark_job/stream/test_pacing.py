"""A batch waits for its goal, and nobody waits who is behind or is to end."""

import pytest

from service.settings import JobSettings
from service.settings.job import Latency
from spark_job.monitoring import metrics
from spark_job.spark.session import polling_delay_ms
from spark_job.stream.pacing import Pacing

MOST = 1_000


class Time:
    """A clock that sleeping moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr("spark_job.stream.pacing.time.sleep", self.pass_by)

    def __call__(self) -> float:
        return self.now

    def pass_by(self, seconds: float) -> None:
        self.now += seconds


def never() -> bool:
    return False


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Time:
    return Time(monkeypatch)


@pytest.mark.parametrize(
    ("latency", "period_s"), [("lowest", 0.0), ("balanced", 0.3), ("cheapest", 1.0), (150, 0.15)]
)
def test_the_next_batch_begins_a_period_after_the_one_before(
    clock: Time, latency: Latency | int, period_s: float
) -> None:
    paced = Pacing(JobSettings(latency=latency).period_ms, MOST, clock)
    for computed_s in (0.1, 0.04, 0.1):
        began = clock.now
        paced.begin()
        clock.pass_by(computed_s)
        paced.pause(10, never)
        assert clock.now - began == pytest.approx(max(period_s, computed_s), abs=1e-6)


def test_a_batch_that_took_longer_than_the_period_is_followed_at_once(clock: Time) -> None:
    paced = Pacing(JobSettings(latency="balanced").period_ms, MOST, clock)
    clock.pass_by(0.31)
    computed = clock.now
    paced.pause(10, never)
    assert clock.now == computed


@pytest.mark.parametrize("events", [MOST, MOST * 95 // 100])
def test_one_that_is_behind_never_waits(clock: Time, events: int) -> None:
    paced = Pacing(JobSettings(latency="cheapest").period_ms, MOST, clock)
    clock.pass_by(0.1)
    computed = clock.now
    paced.pause(events, never)
    assert clock.now == computed


def test_input_after_a_silence_is_not_waited_for(clock: Time) -> None:
    paced = Pacing(JobSettings(latency="balanced").period_ms, MOST, clock)
    clock.pass_by(60.0)  # Spark asked Kafka all the time
    computed = clock.now
    paced.pause(1, never)
    assert clock.now == computed


def test_an_ending_query_is_not_waited_for(clock: Time) -> None:
    paced = Pacing(JobSettings(latency=3_600_000).period_ms, MOST, clock)
    ends_at = clock.now + 0.5
    paced.pause(1, lambda: clock.now >= ends_at)
    assert clock.now < ends_at + 0.1


def test_the_pause_and_the_duty_cycle_are_metrics(clock: Time) -> None:
    before = metrics.REGISTRY.get_sample_value("outbox_batch_wait_seconds_total")
    paced = Pacing(JobSettings(latency="balanced").period_ms, MOST, clock)
    clock.pass_by(0.05)  # Spark plans
    paced.begin()
    clock.pass_by(0.1)
    paced.pause(1, never)
    assert metrics.REGISTRY.get_sample_value("outbox_batch_wait_seconds_total") == pytest.approx(
        (before or 0) + 0.15
    )
    assert metrics.REGISTRY.get_sample_value("outbox_duty_cycle") == pytest.approx(0.1 / 0.3)


def test_kafka_is_asked_less_often_where_batches_may_wait() -> None:
    assert [
        polling_delay_ms(JobSettings(latency=each).period_ms)
        for each in ("lowest", "balanced", "cheapest", 60_000)
    ] == [
        50,
        100,
        333,
        500,
    ]
    assert JobSettings().latency == "balanced"
