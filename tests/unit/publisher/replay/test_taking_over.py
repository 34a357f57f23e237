"""A replay that cannot reach its target, or that it refuses, does what people have asked meanwhile, and says what is wrong."""

import threading
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import KafkaError, KafkaException
from structlog.testing import capture_logs

from contract.cursor import Cursor
from publisher.delivery import outbox_connection as connection
from publisher.delivery.context import Timelines
from publisher.delivery.refusal_bisection import ONE_BY_ONE_EVENTS
from publisher.delivery.sender import StepOutcome, Tenure
from publisher.delivery.transaction import OffsetTally
from publisher.kafka.written_ends import WrittenEnds
from publisher.protocol.records import RowKey
from publisher.protocol.refusals import RecordRefusedError, Refusal
from publisher.protocol.replay_targets import ReplayTargets
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
        targets=ReplayTargets(),
        events_per_second=None,
        rows_total=10,
        events_total=200,
    )
    context = SimpleNamespace(
        settings=Settings.model_construct(
            postgres=PostgresSettings.model_construct(), kafka=KafkaSettings(), publisher=PublisherSettings()
        ),
        outbox=SimpleNamespace(transactional_id_prefix="outbox", outbox_uuid="uuid"),
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
    monkeypatch.setattr(ReplayLease, "release", lambda *_, **__: None, raising=False)
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


class Idle:
    """A connection that remembers that it was closed."""

    closed = False
    info = SimpleNamespace(transaction_status=psycopg.pq.TransactionStatus.IDLE)

    def close(self) -> None:
        self.closed = True


def refused_replay(
    patch: pytest.MonkeyPatch,
    order: list[str],
    fails: Exception,
    *,
    has_fenced: bool = True,
    ends: bool = True,
    given_back: list[bool] | None = None,
) -> ReplayDelivery:
    """Return an open replay whose transaction fails; `order` hears of the ends. `ends`: whether Kafka ends the transaction; `given_back`
    hears whether the lease is.
    """

    class Failing:
        """Kafka refuses its only row."""

        took_s, tally = 0.0, OffsetTally()

        def __init__(self, *_: Any, **__: Any) -> None: ...

        def run(self, *_: Any) -> None:
            raise fails

    class Sending(OpenReplay):
        def open(self) -> None: ...

        def run_once(self) -> StepOutcome:
            with self._sender.finding_refused(self._admission.exclude, self._refused_by_nobody):
                self._sender.send([], [])
            return StepOutcome.DELIVERED

    patch.setattr("publisher.delivery.sender.Transaction", Failing)

    def end_transaction(*found: Any) -> bool:
        order.append(found[2])
        return ends

    def release(_: object, reason: str | None, *, may_be_open: bool) -> None:
        order.append(str(reason))
        if given_back is not None:
            given_back.append(not may_be_open)

    patch.setattr("publisher.delivery.sender.end_transaction", end_transaction)
    patch.setattr(connection, "connect", lambda *_, **__: Idle())
    patch.setattr(connection, "check_unchanged", lambda *_: SimpleNamespace(server_timeline=1))
    context, replay = parts()
    context.topics = SimpleNamespace(written=WrittenEnds())
    context.turns, context.progress_topic = None, "progress"
    replayed = Sending(context, replay)
    producer = SimpleNamespace(poll=lambda _: 0, abort_transaction=lambda _: None, purge=lambda **_: None)
    replayed._sender.producer = cast(Any, producer)
    replayed._sender._bisection.refused(1)
    held: Any = SimpleNamespace(release=release)
    replayed._lease = held
    replayed._has_fenced = has_fenced
    return replayed


REFUSED = RecordRefusedError(
    KafkaError(KafkaError.INVALID_RECORD), {RowKey(1, "k"): Refusal("invalid", "it is no Avro")}, 1
)


@pytest.mark.guarantee(182)
@pytest.mark.parametrize(
    ("has_fenced", "ends", "is_given_back"),
    [(True, True, True), (True, False, False), (False, True, False)],
    ids=["over", "not-ended", "former-holder-not-fenced"],
)
def test_a_lease_is_given_back_only_once_nothing_that_was_sent_can_be_committed(
    monkeypatch: pytest.MonkeyPatch, has_fenced: bool, ends: bool, is_given_back: bool
) -> None:
    given_back: list[bool] = []
    replayed = refused_replay(
        monkeypatch, [], REFUSED, has_fenced=has_fenced, ends=ends, given_back=given_back
    )
    with pytest.raises(StoppedError, match="row_refused"):
        run(parts()[0], replayed, 1)
    assert given_back == [is_given_back]


@pytest.mark.guarantee(54)
def test_a_replay_that_stops_at_a_refused_record_ends_its_transaction_and_then_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order: list[str] = []
    replayed = refused_replay(monkeypatch, order, REFUSED)
    with pytest.raises(StoppedError, match="row_refused"):
        run(parts()[0], replayed, 1)
    ended, reason = order
    assert ended == "outbox-uuid-replay-1"
    assert reason.startswith("row_refused: the target refuses the row of batch 1")


def test_a_replay_without_the_right_to_write_ends_its_transaction_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order: list[str] = []
    refusal = KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(StoppedError, match="not_authorised"):
        run(parts()[0], refused_replay(monkeypatch, order, refusal), 1)
    assert order[0] == "outbox-uuid-replay-1"


def test_the_reason_is_logged_where_postgres_is_away_and_names_no_session_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def away(*_: Any, **__: Any) -> None:
        raise UnavailableError("Postgres is away")

    order: list[str] = []
    replayed = refused_replay(monkeypatch, order, REFUSED)
    monkeypatch.setattr(connection, "connect", away)
    with pytest.raises(StoppedError, match="row_refused"), capture_logs() as logs:
        run(parts()[0], replayed, 1)
    assert order == ["outbox-uuid-replay-1"]
    (line,) = [line for line in logs if line["event"] == "reason_not_recorded"]
    assert (line["reason"], line["error"]) == ("row_refused", "Postgres is away")
