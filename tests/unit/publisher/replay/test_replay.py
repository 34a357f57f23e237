"""What a replay is asked for, how fast it goes, and whether it may continue."""

import re
import zlib
from base64 import b64encode, urlsafe_b64encode
from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.cursor import Cursor
from publisher.protocol.history_check import DeliveryPosition, Identity, Mirror, continue_from
from publisher.protocol.outgoing import Outgoing
from publisher.protocol.records import NO_EXTRAS, Row
from publisher.protocol.remediation import of_replay
from publisher.protocol.replay_targets import ReplayTargets
from publisher.protocol.stop_reasons import StoppedError
from publisher.replay.pace import Pace
from publisher.replay.printing import duration_line
from publisher.replay.progress_record import ReplayProgress
from publisher.replay.selection import Count, Filters, ReplayRange, TopicCount
from publisher.replay.starting import ReplayPlan, ReplayRequest
from service.commands.times import Moment, parse_moment
from service.errors import SettingsError

OUTBOX, REPLAY = uuid4(), uuid4()


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("90s", Moment(age_s=90)),
        ("1d12h", Moment(age_s=129_600)),
        ("1.5h", Moment(age_s=5_400)),
        ("2026-11-21T18:00:00Z", Moment(at=datetime(2026, 11, 21, 18, tzinfo=UTC))),
        ("2026-11-21 18:00", Moment(at=datetime(2026, 11, 21, 18, tzinfo=UTC))),
        ("2026-11-21T20:00:00+02:00", Moment(at=datetime(2026, 11, 21, 18, tzinfo=UTC))),
    ],
)
def test_a_time_is_a_duration_before_now_or_iso_8601_in_utc(text: str, moment: Moment) -> None:
    assert parse_moment(text, "--since") == moment


@pytest.mark.parametrize("text", ["", "yesterday", "2", "h2", "2h ago", "2026-13-01"])
def test_what_is_neither_is_refused_with_both_forms(text: str) -> None:
    with pytest.raises(SettingsError, match=r"--since .* is neither a time .* nor a duration"):
        parse_moment(text, "--since")


def test_what_was_asked_for_is_kept_without_the_keys_themselves() -> None:
    filters = Filters(from_batch=3, since=Moment(age_s=7_200), keys=("a", "b"), topics=("t",))
    assert filters.as_json() == {
        "from_batch": 3,
        "since": "7200s before it was made",
        "keys": 2,
        "topics": ["t"],
    }
    assert Filters().empty
    assert not filters.empty


@pytest.mark.parametrize(
    ("rate", "seconds", "line"),
    [
        (None, None, None),
        (50, 24.0, "at 50 events a second it takes 0:00:24 or longer"),
        (7, 1_200 / 7, "at 7 events a second it takes 0:02:52 or longer"),
    ],
)
def test_a_plan_says_which_topics_it_reaches_and_how_long_the_rate_makes_it(
    rate: int | None, seconds: float | None, line: str | None
) -> None:
    found = Count()
    found.add("orders", TopicCount(1_000, 1_000, 14_000), 1_000, 1_000)
    found.add("clicks", TopicCount(200, 200, 280), 200, 200)
    request = ReplayRequest(Filters(), ReplayTargets(), None, None, rate, create_topics=False)
    plan = ReplayPlan(request, ReplayRange(1, 9, [], []), found, [])
    shown = plan.as_json()
    assert (shown["destinations"], shown["seconds_at_rate"]) == (["clicks", "orders"], seconds)
    assert rate is None or (seconds is not None and duration_line(rate, seconds) == line)
    elsewhere = replace(plan, request=replace(request, targets=ReplayTargets("copy")))
    assert elsewhere.as_json()["destinations"] == ["copy"]
    assert replace(elsewhere, count=Count()).as_json()["destinations"] == []


@given(
    rate=st.integers(1, 10_000),
    sent=st.lists(st.tuples(st.integers(0, 5_000), st.floats(0, 10)), min_size=1, max_size=50),
)
def test_never_more_than_the_rate_goes_out_however_long_transactions_take(
    rate: int, sent: list[tuple[int, float]]
) -> None:
    pace, now, total = Pace(rate), 1_000.0, 0
    for events, took in sent:
        now += pace.wait_s(now)
        # What went out before this transaction had the time that it needs.
        assert total <= rate * (now - 1_000.0) * (1 + 1e-9) + 1e-6
        pace.sent(events, now)
        total += events
        now += took


def test_a_transaction_is_a_second_of_the_rate_and_never_empty() -> None:
    assert Pace(100).rows(20.0, 250) == 5
    assert Pace(1).rows(20.0, 250) == 1
    assert Pace(1_000_000).rows(20.0, 250) == 250
    assert Pace(None).rows(20.0, 250) == 250
    assert Pace(None).wait_s(5.0) == 0


def progress(seq: int, cursor: Cursor, outbox: UUID = OUTBOX, cluster: str = "c") -> ReplayProgress:
    """A record."""
    return ReplayProgress(outbox, cluster, REPLAY, seq, cursor, uuid4(), 5, 100, 1, {"t": "id"})


def test_a_record_of_many_topics_is_one_that_a_topic_takes_by_default() -> None:
    topics = {
        f"orders-of-customer-{number:06}": urlsafe_b64encode(uuid4().bytes)[:22].decode()
        for number in range(20_000)
    }
    record = replace(progress(2, Cursor(3)), topics=topics)
    assert len(record.encode()) < 1_000_000
    assert ReplayProgress.decode(record.encode()) == record


def test_a_record_reads_back_as_it_was_written() -> None:
    for cursor in (Cursor(3), Cursor(3, "kü")):
        record = progress(2, cursor)
        assert ReplayProgress.decode(record.encode()) == record
    whole = progress(2, Cursor(3)).encode()
    bomb = b64encode(zlib.compress(b'{"t":"%s"}' % bytes(b"x" * (5 << 20))))
    for broken in (
        *(b"", b"[]", b"{}", b'{"version": 3}', b'{"version": 1, "cursor": 3}'),
        whole.replace(b"[3,null]", rb'[3,"a\u0000"]'),
        whole.replace(b'"seq":2', b'"seq":1e300'),
        whole.replace(b'{"t":"id"}', b'[["t",[]]]'),
        whole.replace(b'"version":1', b'"version":2'),
        whole.replace(b'"version":1', b'"version":2').replace(b'{"t":"id"}', b'"rubbish!"'),
        whole.replace(b'"version":1', b'"version":2').replace(b'{"t":"id"}', b'"AAAA"'),
        whole.replace(b'"version":1', b'"version":2').replace(b'{"t":"id"}', b'"%s"' % bomb),
    ):
        with pytest.raises(ValueError, match="progress record"):
            ReplayProgress.decode(broken)


@pytest.mark.guarantee(77)
@pytest.mark.parametrize(
    ("record", "seq", "cursor", "why"),
    [
        (None, 0, Cursor(0), None),
        (None, 1, Cursor(2), "kafka_lost"),
        (progress(1, Cursor(2)), 0, Cursor(0), None),
        (progress(1, Cursor(2)), 1, Cursor(2), None),
        (progress(1, Cursor(2)), 1, Cursor(3), "database_restored"),
        (progress(2, Cursor(2)), 0, Cursor(0), "database_restored"),
        (progress(1, Cursor(2)), 2, Cursor(3), "kafka_lost"),
        (progress(1, Cursor(2), outbox=uuid4()), 1, Cursor(2), "other_outbox"),
        (progress(1, Cursor(2), cluster="d"), 1, Cursor(2), "other_cluster"),
    ],
)
def test_it_continues_only_where_kafka_and_postgres_tell_one_history(
    record: ReplayProgress | None, seq: int, cursor: Cursor, why: str | None
) -> None:
    def decided() -> DeliveryPosition:
        found = None if record is None else record.commit_id
        mirror, start = Mirror(seq, cursor, seq), DeliveryPosition(0, Cursor(0), None)
        return continue_from(Identity(OUTBOX, "c"), record, mirror, start, found, of_replay(1))

    if why is None:
        decided()
        return
    with pytest.raises(StoppedError, match=f"^{why}: .*replay cancel 1`"):
        decided()


@pytest.mark.guarantee(50)
def test_an_output_keeps_its_outbox_id_whichever_others_are_left_out() -> None:
    row = Row(
        7, "k", 2, ["T"], [0], [9], [3], ["a", "b", "a"], [b"0", b"1", b"2"], None,
        [None, None, [["own", "x"]]], None, None,
    )  # fmt: skip
    outgoing = Outgoing(REPLAY, frozenset({"a"}), ReplayTargets("elsewhere"), NO_EXTRAS)
    first, last = outgoing.records(row)
    mark = ("outbox-replay", str(REPLAY).encode())
    assert (first.topic, first.value, first.key) == ("elsewhere", b"0", b"k")
    assert first.headers == [("outbox-id", b"T/0/9/0"), ("outbox-revision", b"2"), mark]
    assert last.headers == [("outbox-id", b"T/0/9/2"), ("outbox-revision", b"2"), ("own", b"x"), mark]
    assert outgoing.destinations([row]) == {"elsewhere"}
    assert (
        Outgoing(REPLAY, frozenset({"z"}), ReplayTargets("elsewhere"), NO_EXTRAS).destinations([row]) == set()
    )


@pytest.mark.parametrize(
    ("words", "text", "moved"),
    [
        ([], None, {"a", "b"}),
        (["copy"], "copy", {"copy"}),
        (["b=c", "a=d"], "a=d,b=c", {"c", "d"}),
        (["a=copy"], "a=copy", {"copy", "b"}),
        (["a=x", "b=x"], "a=x,b=x", {"x"}),
    ],
)
def test_targets_are_kept_as_text(words: list[str], text: str | None, moved: set[str]) -> None:
    targets = ReplayTargets.of_words(words) if words else ReplayTargets()
    assert (targets.text, targets.of_all(["a", "b"])) == (text, moved)
    assert ReplayTargets.of_text(text) == targets


@pytest.mark.parametrize(
    "words", [["copy", "a=b"], ["one", "two"], ["a=b", "a=c"], ["a="], ["=b"], ["a=b=c"]]
)
def test_words_that_contradict_each_other_are_refused(words: list[str]) -> None:
    with pytest.raises(ValueError, match=re.escape(words[0])):
        ReplayTargets.of_words(words)
