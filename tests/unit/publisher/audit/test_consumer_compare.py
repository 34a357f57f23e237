"""The audit of a consumer finds exactly what was done to what it remembers, whatever that was."""

import tracemalloc
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from publisher.audit.consumer.compare import (
    ONCE,
    RETRIED,
    SET_ASIDE,
    ConsumerComparison,
    Range,
    Remembered,
    Visited,
)
from publisher.audit.readback.digest import (
    NONE,
    NOT_REPLAYED,
    ExpectedOutput,
    Mark,
    ReceivedOutput,
    identity_of,
    short_hash,
)

END = 100
FATES = (
    "consumed",
    "missing",
    "twice",
    "late",
    "retried",
    "aside",
    "forgotten",
    "reissued",
    "replayed",
    "waiting",
    "unsubscribed",
)


def name(number: int) -> bytes:
    return b"T/0/%d/0" % number


def expected(number: int, revision: int = 0) -> ExpectedOutput:
    return ExpectedOutput(
        identity_of(name(number), revision), b"", b"", b"", 1, 0, 0, 0, 0, NONE, NONE, Mark.DEMANDED, 1
    )


def record(number: int, offset: int, revision: int = 0, *, replay: bool = False) -> ReceivedOutput:
    by = short_hash(b"r", b"") if replay else NOT_REPLAYED
    return ReceivedOutput(
        identity_of(name(number), revision), b"", 0, 0, offset, 0, revision, number, 0, by, 0
    )


def remembered(number: int, offset: int, revision: int = 0, *, at: int = 0, kind: int = ONCE) -> Remembered:
    return Remembered(identity_of(name(number), revision), 0, number, 0, revision, 0, 0, offset, at, kind)


def compare(
    outputs: list[ExpectedOutput],
    records: list[ReceivedOutput],
    rows: list[Remembered],
    first: int = 0,
    position: int = END,
    forgotten: int = NONE,
) -> ConsumerComparison:
    found = ConsumerComparison(
        {(0, 0): Range(first, position)}, {0: {0: END}}, lambda row: None, {0: forgotten}
    )
    visits = list(found.compare_bucket(outputs, records, rows))
    newest = 0
    for begin in range(0, END, 7):
        some = [visit for visit in visits if begin <= visit.offset < begin + 7]
        newest = found.compare_order(some, newest)
    return found


@given(st.lists(st.sampled_from(FATES), max_size=20), st.randoms())
def test_each_fate_of_an_output_is_told(fates: list[str], order: object) -> None:
    """Output n is at offset 10 + n; those that the consumer did not ask for yet, or no more, are the first and the last ones."""
    fates = sorted(fates, key=lambda fate: (fate != "unsubscribed", fate != "forgotten", fate == "waiting"))
    outputs, records, rows = [], [], []
    first = 10 + fates.count("unsubscribed")
    position = 10 + len(fates) - fates.count("waiting")
    for number, fate in enumerate(fates):
        at = 10 + number
        outputs.append(expected(number))
        records.append(record(number, at))
        match fate:
            case "consumed":
                rows.append(remembered(number, at, at=1_000 + at))
            case "twice":
                rows += [remembered(number, at, at=1_000 + at)] * 2
            case "late":
                rows.append(remembered(number, at, at=500))
            case "retried":
                rows.append(remembered(number, at, at=9_000, kind=RETRIED))
            case "aside":
                rows.append(remembered(number, at, kind=SET_ASIDE))
            case "reissued":
                outputs.append(expected(number, 1))
                records.append(record(number, at + 50, 1))
                rows.append(remembered(number, at + 50, 1, at=5_000 + at))
            case "replayed":
                # It was consumed from the copy: a loss that a replay has repaired.
                records[-1] = record(number, at, replay=True)
                rows.append(remembered(number, at, at=1_000 + at))
    if "reissued" in fates:
        position = max(position, END)
        records = [each for each, fate in zip(records, fates, strict=False)] + records[len(fates) :]
    ends = Counter(fates)
    waits = 0 if "reissued" in fates else ends["waiting"]
    forgotten = first - 10 + ends["forgotten"] - 1 if ends["forgotten"] else NONE
    found = compare(outputs, records, rows, first, position, forgotten)
    assert found.missing.count == ends["missing"] + ends["waiting"] - waits
    assert found.twice.count == ends["twice"]
    assert found.set_aside.count == ends["aside"]
    assert found.behind.get((0, 0), 0) == waits
    assert found.counted["forgotten_by_the_consumer"] == ends["forgotten"]
    assert found.counted["records_not_subscribed_to"] == ends["unsubscribed"]
    assert found.counted["records_superseded_by_reissue"] == ends["reissued"]
    assert found.undelivered.count == 0
    seen = [fate for fate in fates if fate in ("consumed", "twice", "late", "replayed")]
    assert found.disordered.count == sum(
        any(former != "late" for former in seen[:place]) for place, fate in enumerate(seen) if fate == "late"
    )


def test_an_output_that_nobody_sent_is_told_and_one_of_another_scope_is_not() -> None:
    found = compare([expected(1)], [record(1, 10)], [remembered(1, 10), remembered(2, 11)])
    assert [row.end_offset for row in found.undelivered.examples] == [2]
    # A row that no lane is past, and one that is not looked at.
    waiting = expected(3)._replace(marks=0)
    found = ConsumerComparison({}, {0: {0: END}}, lambda row: "records_out_of_scope")
    assert list(found.compare_bucket([waiting], [], [remembered(3, 11), remembered(4, 12)])) == []
    assert [row.end_offset for row in found.undelivered.examples] == [3]
    assert found.counted["consumed_out_of_scope"] == 1


def test_what_was_consumed_beyond_the_audit_is_not_judged() -> None:
    found = compare([expected(1)], [record(1, 10)], [remembered(1, END + 5, 1)])
    assert (found.undelivered.count, found.missing.count) == (0, 0)
    assert found.counted["consumed_during_the_audit"] == 1


def test_a_smaller_revision_than_was_sent_is_not_enough() -> None:
    found = compare([expected(1), expected(1, 1)], [record(1, 10), record(1, 11, 1)], [remembered(1, 10)])
    assert [copy.revision for copy in found.missing.examples] == [1]


def test_the_order_is_compared_over_the_ranges() -> None:
    found = ConsumerComparison({}, {}, lambda row: None)
    newest = found.compare_order([Visited(0, 0, 1, 50), Visited(0, 0, 0, 40)], 0)
    found.compare_order([Visited(0, 0, 2, 45)], newest)
    assert [visit.offset for visit in found.disordered.examples] == [2]


def test_what_a_topic_deleted_and_the_consumer_does_not_remember_is_counted() -> None:
    expired = [expected(n)._replace(marks=Mark.DEMANDED | Mark.EXPIRED) for n in range(4)]
    elsewhere = expected(5)._replace(marks=Mark.DEMANDED | Mark.EXPIRED, topic=1)
    # A replay has sent one of them again, which waits; one is remembered.
    found = compare([*expired, elsewhere], [record(1, 20, replay=True)], [remembered(2, 3)], position=20)
    assert (found.expired, found.behind, found.missing.count) == ({0: 2}, {(0, 0): 1}, 0)


def test_records_of_others_that_were_set_aside_fill_no_memory() -> None:
    """Whoever may write to the topic makes them, under the outbox-id of an output that was sent."""
    found = ConsumerComparison({(0, 0): Range(0, END)}, {0: {0: END}}, lambda row: None)
    rows = (remembered(1, offset, kind=SET_ASIDE) for offset in range(50_000))
    tracemalloc.start()
    try:
        assert list(found.compare_bucket([expected(1)], [record(1, 7)], rows)) == []
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (found.set_aside.count, found.missing.count) == (50_000, 0)
    assert peak < 1 << 20
