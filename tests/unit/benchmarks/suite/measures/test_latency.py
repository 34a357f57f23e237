"""Rates one after the other: one that fails costs none of the others, before it or after it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from benchmarks.peers.contender import Contender
from benchmarks.suite.load.latencies import SentEnd
from benchmarks.suite.load.senders import Sent
from benchmarks.suite.load.workload import EVENTS, Bench
from benchmarks.suite.measures import latency
from benchmarks.support.rounds import FailedRounds

CONTENDER = cast(Contender, SimpleNamespace(name="ours"))
BENCH = cast(Bench, SimpleNamespace(servers=SimpleNamespace(bootstrap_servers="")))


class Load:
    """Instead of a contender under load: rates at which something goes wrong."""

    def __init__(self) -> None:
        self.starts = 0
        self.ends_at: Mapping[float, BaseException] = {}
        self.behind_at = 0.0
        self.does_start: Callable[[], bool] = lambda: True

    @contextmanager
    def warmed(self, *_: object, settle_s: float) -> Iterator[Any]:
        self.starts += 1
        if not self.does_start():
            raise RuntimeError("no output")
        arrivals = SimpleNamespace(received={})
        yield SimpleNamespace(watcher=SimpleNamespace(stop=lambda: arrivals), ends={})

    def phase(self, run: object, rate: float, *_: object) -> Any:
        if rate in self.ends_at:
            raise self.ends_at[rate]
        late = 9.0 if rate == self.behind_at else 0.0
        return SimpleNamespace(measured=lambda received: {"p50": rate, "behind_s": late})


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Load:
    """Stands in for servers and processes."""
    made = Load()
    monkeypatch.setattr(latency, "warmed", made.warmed)
    monkeypatch.setattr(latency, "phase", made.phase)
    monkeypatch.setattr(latency, "completeness", lambda *_: {"missing": 0.0, "strange": 7.0})
    return made


def measured(failures: FailedRounds) -> Iterator[tuple[float, dict[str, float]]]:
    return latency.measure(
        BENCH,
        CONTENDER,
        [10.0, 100.0, 500.0],
        failures,
        partitions=4,
        settle_s=1.0,
        warm_up_s=1.0,
        seconds=1.0,
    )


def test_all_rates_are_measured_on_one_start(load: Load) -> None:
    failures = FailedRounds()
    assert [rate for rate, _ in measured(failures)] == [10.0, 100.0, 500.0]
    assert (load.starts, failures.failed) == (1, [])


def test_the_rates_after_one_that_failed_are_measured_on_a_new_start(load: Load) -> None:
    load.ends_at = {100.0: RuntimeError("the job ended")}
    failures = FailedRounds()
    found = dict(measured(failures))
    assert list(found) == [10.0, 500.0]
    assert load.starts == 2
    assert failures.failed == ["ours, 100 sessions/s: RuntimeError: the job ended"]
    # What was sent at the rate that failed may be in the topic: nobody knows what is strange.
    assert "strange" not in found[10.0]
    assert found[500.0]["strange"] == 7.0


def test_a_rate_that_could_not_be_sent_is_no_figure_but_a_failure(load: Load) -> None:
    load.behind_at = 500.0
    failures = FailedRounds()
    assert [rate for rate, _ in measured(failures)] == [10.0, 100.0]
    assert len(failures.failed) == 1
    assert "500 sessions/s: SendersBehindError" in failures.failed[0]


def test_what_was_measured_is_kept_where_the_contender_does_not_start_again(load: Load) -> None:
    load.ends_at = {100.0: RuntimeError("the job ended")}
    load.does_start = lambda: load.starts == 1
    found = measured(FailedRounds())
    assert next(found)[0] == 10.0
    with pytest.raises(RuntimeError, match="no output"):
        next(found)


def test_cores_are_the_cpu_of_a_second_and_kafkas_are_its_own() -> None:
    ends = {b"a": SentEnd(101.0, 101.0), b"b": SentEnd(105.0, 105.0)}
    phase = latency.Phase(Sent(ends), (100.0, 110.0), latency.Cpu(own=6.0, kafka=1.5))
    found = phase.measured({b"a": 101.25, b"b": 105.5})
    assert (found["cores"], found["cores_kafka"]) == (0.6, 0.15)
    assert found["cpu"] == pytest.approx(6e6 / (2 * EVENTS))
