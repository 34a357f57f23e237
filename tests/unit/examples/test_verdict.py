"""The demo's verdict: what the rules call for, and that every kind of difference is named."""

from collections.abc import Iterable
from dataclasses import replace

import orjson
import pytest

from examples.clickstream.reading import KafkaRecord
from examples.demo.expected import Expected, Letter, expect
from examples.demo.verdict import Verdict, judge
from service.settings import SessionSettings
from spark_job.api import OutputEvent, Session

SETTINGS = SessionSettings(event_id="$.event_id", time="$.at", timeout_s=60)
SECOND = "2024-01-01T00:{:02d}:{:02d}.000Z"


def event(key: str, kind: str, at: int, event_id: str, page: str | None = None) -> bytes:
    body = {
        "event_type": f"{kind}_event",
        "session_key": key,
        "at": SECOND.format(*divmod(at, 60)),
        "event_id": event_id,
    }
    return orjson.dumps(body | ({"page": page} if page else {}))


def topic(values: Iterable[bytes], name: str = "in", partition: int = 0) -> list[KafkaRecord]:
    return [KafkaRecord(name, partition, n, 0, None, value, {}) for n, value in enumerate(values)]


def transform(session: Session) -> Iterable[OutputEvent]:
    """One output for the session and one for each page, to two topics and another key."""
    yield OutputEvent("out", {"events": len(session.events)})
    for page in session.events[1:-1]:
        yield OutputEvent("out", {"page": page.value["page"]})
    yield OutputEvent("other", b"raw", key="fixed")


def expected_of(values: Iterable[bytes]) -> Expected:
    return expect(topic(values), {"in": "T"}, SETTINGS, transform)


def delivery(expected: Expected) -> list[KafkaRecord]:
    """What a perfect publisher would have sent."""
    return [
        KafkaRecord(o.topic, 0, n, 0, o.key, o.value, {"outbox-id": o.outbox_id.encode()})
        for n, o in enumerate(expected.outputs)
    ]


VISIT = [
    event("a", "start", 0, "start"),
    event("a", "entry", 1, "0", "home"),
    event("a", "entry", 2, "1", "cart"),
    event("a", "end", 2, "end"),
]


def kinds(verdict: Verdict) -> list[str]:
    return [finding.kind for finding in verdict.findings]


def test_a_session_calls_for_its_outputs_with_ids_from_the_end_position() -> None:
    expected = expected_of([*VISIT[:2], event("b", "start", 1, "start"), *VISIT[2:]])
    assert expected.sessions == 1
    assert [(o.topic, o.key, o.value, o.outbox_id) for o in expected.outputs] == [
        ("out", b"a", b'{"events":4}', "T/0/4/0"),
        ("out", b"a", b'{"page":"home"}', "T/0/4/1"),
        ("out", b"a", b'{"page":"cart"}', "T/0/4/2"),
        ("other", b"fixed", b"raw", "T/0/4/3"),
    ]
    assert expected.letters == []
    assert expected.unfinished == [Letter("timed_out", "in", 0, 2)]


@pytest.mark.parametrize(
    ("values", "letters", "sessions"),
    [
        ([b"{cut"], [("malformed", 0)], 0),
        ([*VISIT[:2], b"[1]", *VISIT[2:]], [("malformed", 2)], 1),
        ([VISIT[1], VISIT[3]], [("no_start", 0), ("no_start", 1)], 0),
        ([*VISIT, VISIT[3]], [("no_start", 4)], 1),
        ([*VISIT[:2], event("a", "start", 1, "other"), *VISIT[2:]], [("restarted", 0)], 1),
        ([VISIT[0], *VISIT], [], 1),
        ([*VISIT[:2], VISIT[1], *VISIT[2:]], [], 1),
        ([VISIT[0], event("a", "end", 61, "end")], [("timed_out", 0), ("no_start", 1)], 0),
        ([VISIT[0], event("a", "end", 60, "end")], [], 1),
        ([VISIT[0], event("a", "entry", 1, "0"), VISIT[3]], [("transform_failed", 0)], 0),
        ([*VISIT, *VISIT], [], 2),
    ],
)
def test_the_rules_of_the_input(values: list[bytes], letters: list[tuple[str, int]], sessions: int) -> None:
    expected = expected_of(values)
    assert [(letter.reason, letter.first_offset) for letter in expected.letters] == letters
    assert expected.sessions == sessions


def test_repeated_events_are_left_out_of_the_session() -> None:
    expected = expected_of([*VISIT[:2], VISIT[1], *VISIT[2:]])
    assert expected.outputs[0].value == b'{"events":4}'


def test_the_same_key_in_two_partitions_is_two_sessions() -> None:
    pairs = zip(topic(VISIT, partition=0), topic(VISIT, partition=1), strict=True)
    records = [record for pair in pairs for record in pair]
    expected = expect(records, {"in": "T"}, SETTINGS, transform)
    assert expected.sessions == 2
    assert {o.outbox_id.split("/")[1] for o in expected.outputs} == {"0", "1"}


def test_what_is_right_is_clean() -> None:
    expected = expected_of([*VISIT, *VISIT])
    verdict = judge(expected, delivery(expected), [])
    assert verdict.clean
    assert (verdict.delivered, verdict.missing, verdict.duplicates) == (8, 0, 0)


def test_a_lost_record_is_named() -> None:
    expected = expected_of(VISIT)
    received = delivery(expected)
    del received[1]
    verdict = judge(expected, received, [])
    assert (kinds(verdict), verdict.missing, verdict.duplicates) == (["lost"], 1, 0)
    assert "T/0/3/1" in verdict.findings[0].what
    assert not verdict.clean


def test_a_duplicated_record_is_named() -> None:
    expected = expected_of(VISIT)
    received = delivery(expected)
    verdict = judge(expected, [*received, received[2]], [])
    assert (kinds(verdict), verdict.missing, verdict.duplicates) == (["duplicated"], 0, 1)
    assert "T/0/3/2" in verdict.findings[0].what
    assert not verdict.clean


@pytest.mark.parametrize("change", [{"value": b'{"page":"Cart"}'}, {"key": b"b"}, {"topic": "other"}])
def test_an_altered_record_is_named(change: dict[str, bytes]) -> None:
    expected = expected_of(VISIT)
    received = delivery(expected)
    received[2] = replace(received[2], **change)  # type: ignore[arg-type] # topic is text
    verdict = judge(expected, received, [])
    assert "altered" in kinds(verdict)
    assert "T/0/3/2" in verdict.findings[0].what
    assert verdict.missing == 1
    assert not verdict.clean


def test_a_reordered_record_is_named() -> None:
    expected = expected_of(VISIT)
    received = delivery(expected)
    received[1], received[2] = received[2], received[1]
    verdict = judge(expected, received, [])
    assert (kinds(verdict), verdict.missing, verdict.duplicates) == (["reordered"], 0, 0)
    assert not verdict.clean


def test_records_of_other_keys_may_come_in_between() -> None:
    expected = expected_of([*VISIT, *(value.replace(b'"a"', b'"b"') for value in VISIT)])
    received = delivery(expected)
    verdict = judge(expected, [*received[4:], *received[:4]], [])
    assert kinds(verdict) == ["reordered"], "the key `fixed` is in both sessions, the keys a and b are not"
    assert "fixed" in verdict.findings[0].what


def test_a_record_that_nothing_calls_for_is_named() -> None:
    expected = expected_of(VISIT)
    received = delivery(expected)
    stray = replace(received[0], value=b"stray", headers={"outbox-id": b"T/0/9/0"})
    verdict = judge(expected, [*received, stray], [])
    assert kinds(verdict) == ["unknown"]
    assert not verdict.clean


def test_right_contents_under_exchanged_ids_are_named() -> None:
    expected = expected_of(VISIT)
    received = delivery(expected)
    first, second = received[0].headers, received[1].headers
    received[:2] = [replace(received[0], headers=second), replace(received[1], headers=first)]
    verdict = judge(expected, received, [])
    assert set(kinds(verdict)) == {"altered", "reordered"}
    assert not verdict.clean


def test_a_content_lost_under_a_repeated_id_is_named() -> None:
    expected = expected_of(VISIT)
    received = delivery(expected)
    received[1] = replace(received[1], headers=received[0].headers)
    verdict = judge(expected, received, [])
    assert {"lost", "duplicated"} <= set(kinds(verdict))
    assert not verdict.clean


def test_dead_letters_are_judged_too() -> None:
    expected = expected_of([b"{cut", *VISIT, event("c", "start", 3, "start")])
    letter, open_session = Letter("malformed", "in", 0, 0), Letter("timed_out", "in", 0, 5)
    received = delivery(expected)
    assert judge(expected, received, [letter]).clean
    assert judge(expected, received, [letter, open_session]).clean
    assert kinds(judge(expected, received, [])) == ["letter missing"]
    assert kinds(judge(expected, received, [letter, letter])) == ["letter too many"]
    assert kinds(judge(expected, received, [letter, Letter("timed_out", "in", 0, 1)])) == ["letter too many"]
