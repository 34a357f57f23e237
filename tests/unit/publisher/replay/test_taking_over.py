"""A replay that cannot reach its target yet keeps to what people have asked for meanwhile, and says what is wrong."""

import threading
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import KafkaError

from contract.cursor import Cursor
from publisher.delivery import outbox_connection as connection
from publisher.delivery.context import Timelines
from publisher.delivery.refusal_bisection import ONE_BY_ONE_EVENTS
from publisher.delivery.sender import StepOutcome, Tenure
from publisher.protocol.refusals import RecordRefusedError
from publisher.protocol.stop_reasons import StartOverError, StoppedError, StopReason, TopicMissingError
from publisher.replay import delivery
from publisher.replay.delivery import ReplayDelivery
from publisher.replay.runner import End, run
from publisher.replay.store import ReplayLease
from publisher.replay.target import check_topics
from service.errors import UnavailableError
from service.settings import KafkaSettings, PostgresSettings, PublisherSettings, Settings


def parts() -> tuple[Any, Any]:
    """What a replay is made of."""
    replay = SimpleNamespace(
        replay_id=1,
        replay_uuid=uuid4(),
        topics=None,
        target_topic=None,
        events_per_second=None,
        rows_total=10,
        events_total=200,
    )
    context = SimpleNamespace(
        settings=Settings.model_construct(
            postgres=PostgresSettings.model_construct(), kafka=KafkaSettings(), publisher=PublisherSettings()
        ),
        outbox=None,
        timelines=Timelines(1),
        topics=None,
        holder="me",
        stop=threading.Event(),
        give_up=lambda: False,
    )
    return context, replay


class OpenReplay(ReplayDelivery):
    """Kafka refuses what it delivers."""

    def __init__(self, context: Any, replay: Any) -> None:
        super().__init__(context, replay)
        nothing: Any = None
        self._tenure = Tenure(nothing, nothing)
        self.refused: Exception | None = None

    def _next_chunk(self, *_: Any) -> Any:
        assert self.refused is not None
        raise self.refused


def test_a_refused_record_is_looked_for_as_in_a_lane_a_few_rows_at_a_time() -> None:
    delivery = OpenReplay(*parts())
    assert (delivery.limits.rows, delivery.limits.events) == (250, None)
    delivery.refused = refused = RecordRefusedError(KafkaError(KafkaError.INVALID_RECORD), {}, 250)
    for rows in (125, 62, 31):
        with pytest.raises(StartOverError):
            delivery.run_once()
        assert delivery.limits.rows == rows
        refused.sent = rows
    assert delivery.limits.events == ONE_BY_ONE_EVENTS


def test_a_pause_is_not_undone_by_a_continue_that_still_waits_for_kafka(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[bool] = []

    def claim(*_: Any, paused_too: bool) -> Any:
        """The replay is paused again after the first claim."""
        asked.append(paused_too)
        return SimpleNamespace(seq=0, cursor=Cursor(0)) if paused_too or len(asked) == 1 else None

    def unreachable(*_: Any) -> None:
        if len(asked) > 5:
            pytest.fail("it was claimed again and again, though it is paused")
        raise UnavailableError("Kafka is away")

    class Nothing:
        """A stand-in for the connection."""

        closed = False
        info = SimpleNamespace(transaction_status=psycopg.pq.TransactionStatus.IDLE)

        def close(self) -> None: ...

    monkeypatch.setattr(ReplayLease, "claim", claim)
    monkeypatch.setattr(ReplayLease, "release", lambda *_: None, raising=False)
    monkeypatch.setattr(connection, "connect", lambda *_, **__: Nothing())
    monkeypatch.setattr(connection, "check_unchanged", lambda *_: SimpleNamespace(server_timeline=1))
    monkeypatch.setattr(delivery, "load", lambda *_: SimpleNamespace(state="paused", lease_holder=None))
    monkeypatch.setattr(delivery, "check_target", unreachable)
    context, replay = parts()
    ended = run(context, ReplayDelivery(context, replay, paused_too=True), 1)
    assert ended is End.CHANGED
    assert asked == [True, False]


class RatedReplay:
    """Waits for longer than a runner's patience because of its rate, and then fails `failures` times, a minute each."""

    replay_uuid = uuid4()
    rested_at = 0.0

    def __init__(self, clock: list[float], failures: int) -> None:
        self._clock, self._left = clock, failures
        self._steps = 0

    def open(self) -> bool:
        return True

    def run_once(self) -> StepOutcome:
        self._steps += 1
        if self._steps == 2:
            self._clock[0] += 400.0
            self.rested_at = self._clock[0]
        if self._steps >= 2 and self._left:
            self._left -= 1
            self._clock[0] += 60.0
            raise UnavailableError("Kafka is away")
        return StepOutcome.DELIVERED if self._steps < 2 else StepOutcome.DONE

    def discard(self) -> None: ...

    def release(self, _reason: str | None) -> None: ...


def test_the_time_that_a_replay_waits_because_of_its_rate_is_not_counted_as_failing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [1_000.0]
    monkeypatch.setattr("publisher.replay.runner.time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr("publisher.replay.runner.Backoff.next", lambda _self: 0.0)
    context, _ = parts()
    rated: Any = RatedReplay(clock, failures=4)
    assert run(context, rated, 1) is End.DONE
    with pytest.raises(UnavailableError, match="nothing was sent for 300 s"):
        run(context, cast(Any, RatedReplay(clock, failures=6)), 1)


@pytest.mark.parametrize(
    ("found", "raised", "words"),
    [
        (
            StoppedError(StopReason.OUTPUT_TOPIC_UNWRITABLE, "only 1 replica", retry=True),
            UnavailableError,
            "only 1 replica",
        ),
        (TopicMissingError("t", "it is missing"), StoppedError, "--create-topics"),
    ],
)
def test_a_topic_that_takes_nothing_for_now_is_tried_again_and_not_called_missing(
    found: StoppedError, raised: type[Exception], words: str
) -> None:
    def describe(*_: Any, **__: Any) -> None:
        raise found

    context: Any = SimpleNamespace(
        settings=SimpleNamespace(kafka=SimpleNamespace(bootstrap_servers="here:1")),
        topics=SimpleNamespace(describe=describe),
    )
    with pytest.raises(raised, match=words):
        check_topics(context, ["t"])
