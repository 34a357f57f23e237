"""The audit's comparison finds exactly what was done to a history, whatever that was."""

import tracemalloc
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from publisher.audit.findings import FindingTally
from publisher.audit.readback.compare import Comparison
from publisher.audit.readback.digest import (
    NONE,
    NOT_REPLAYED,
    ExpectedOutput,
    Mark,
    ReceivedOutput,
    content_of,
    identity_of,
    short_hash,
)

OUTPUTS = 6
NOTHING, REMOVED, COPIED, ALTERED, REPLAYED, ONLY_REPLAYED = range(6)


def expected(
    key: int, batch: int, event: int, marks: Mark = Mark.DEMANDED, copies: int = 1
) -> ExpectedOutput:
    """Output `event` of the one session of a key in a batch."""
    name = b"%d/%d/%d" % (key, batch, event)
    by = short_hash(b"%d" % key, b"")
    return ExpectedOutput(
        identity_of(name, 0), content_of(b"k", name, ()), by, by, batch, 0, key, event, 0, NONE,
        NONE, marks, copies,
    )  # fmt: skip


def found(
    output: ExpectedOutput, offset: int, content: bytes = b"", *, replay: bytes = b"", topic: int = 0
) -> ReceivedOutput:
    """Its record. `replay`: the uuid of the replay that sent it."""
    by = short_hash(replay, b"") if replay else NOT_REPLAYED
    return ReceivedOutput(output.identity, content or output.content, topic, 0, offset, 5, 0, 0, 0, by)


def compare(outputs: list[ExpectedOutput], records: list[ReceivedOutput]) -> Comparison:
    """Look at everything as one bucket."""
    comparison = Comparison(rule=lambda record: None, on_lost=lambda lost: None)
    comparison.compare_order(comparison.compare_bucket(outputs, iter(records))[0])
    return comparison


def compare_compacted(
    outputs: list[ExpectedOutput], records: list[ReceivedOutput], shared: frozenset[int] = frozenset()
) -> Comparison:
    """Look at everything as one bucket, topic 0 being compacted. No replay is named for what is lost there."""

    def named(lost: list[ExpectedOutput]) -> None:
        raise AssertionError(f"a replay would be named for {lost}")

    comparison = Comparison(
        rule=lambda record: None, on_lost=named, compacted=frozenset([0]), shared=frozenset(shared)
    )
    comparison.compare_compacted(comparison.compare_bucket(outputs, records)[1])
    return comparison


def names(tally: FindingTally[ExpectedOutput]) -> list[bytes]:
    """Which outputs were counted."""
    return [output.identity for output in tally.examples]


def counts(comparison: Comparison) -> list[int]:
    """How much was found of each kind."""
    kinds = ("lost", "duplicated", "altered", "unexpected", "parked", "disordered")
    return [getattr(comparison, kind).count for kind in kinds]


def history() -> list[ExpectedOutput]:
    """Three keys, two batches, outputs in the order in which a lane sends them."""
    return [expected(key, batch, event) for batch in (1, 2) for key in range(3) for event in range(OUTPUTS)]


@given(st.lists(st.sampled_from(range(6)), min_size=36, max_size=36))
def test_each_fault_is_counted_where_it_was_made_and_nowhere_else(faults: list[int]) -> None:
    records = []
    later = 1_000
    for offset, (output, fault) in enumerate(zip(history(), faults, strict=True)):
        if fault == ALTERED:
            records.append(found(output, offset, b"x" * 16))
        elif fault not in (REMOVED, ONLY_REPLAYED):
            records.append(found(output, offset))
        if fault == COPIED:
            records.append(found(output, later + offset))
        if fault in (REPLAYED, ONLY_REPLAYED):
            records.append(found(output, later + offset, replay=b"1"))
    made = Counter(faults)
    assert counts(compare(history(), records)) == [made[REMOVED], made[COPIED], made[ALTERED], 0, 0, 0]


@given(st.permutations(range(36)))
def test_the_order_is_broken_exactly_where_two_neighbours_of_a_key_are_swapped(offsets: list[int]) -> None:
    outputs = history()
    records = [found(output, offset) for output, offset in zip(outputs, offsets, strict=True)]
    last: dict[bytes, int] = {}
    ordered = True
    for output, offset in zip(outputs, offsets, strict=True):
        ordered = ordered and last.get(output.session_key, -1) < offset
        last[output.session_key] = offset
    assert (compare(outputs, records).disordered.count == 0) == ordered


def test_two_sessions_of_a_key_that_lie_the_other_way_round_are_out_of_order() -> None:
    outputs = [expected(0, batch, event) for batch in (1, 2) for event in range(3)]
    swapped = [*outputs[3:], *outputs[:3]]
    assert compare(outputs, [found(output, n) for n, output in enumerate(outputs)]).disordered.count == 0
    assert compare(outputs, [found(output, n) for n, output in enumerate(swapped)]).disordered.count == 1


def test_sessions_of_one_row_that_lie_in_different_buckets_are_in_order() -> None:
    """Session 0 and 2 share a bucket, and session 1, whose records lie between theirs, is in another one."""
    outputs = [expected(1, 1, event) for event in range(3)]
    records = [
        found(output, 100 + session)._replace(input_offset=session) for session, output in enumerate(outputs)
    ]
    for offsets, disordered in (((0, 1, 2), 0), ((0, 2, 1), 1)):
        sent = [each._replace(offset=100 + at) for each, at in zip(records, offsets, strict=True)]
        comparison = Comparison(rule=lambda record: None, on_lost=lambda lost: None)
        visits = [
            visit
            for bucket in ((0, 2), (1,))
            for visit in comparison.compare_bucket([outputs[n] for n in bucket], [sent[n] for n in bucket])[0]
        ]
        comparison.compare_order(visits)
        assert comparison.disordered.count == disordered


def test_what_need_not_be_there_is_not_lost_but_counted() -> None:
    outputs = [
        expected(0, 1, 0, Mark(0)),
        expected(0, 1, 1, Mark.DEMANDED | Mark.EXPIRED),
        expected(0, 1, 2, Mark.DEMANDED | Mark.SKIPPED),
        expected(0, 1, 3, Mark.PARKED, copies=0),
        expected(0, 1, 4, copies=2),
    ]
    again = [found(outputs[4], 1), found(outputs[4], 2)]
    comparison = compare(outputs, again)
    assert counts(comparison) == [0] * 6
    assert comparison.counted["expired_outputs"] == 1
    assert comparison.skipped.examples == [outputs[2]]
    assert comparison.counted["records_sent_again_by_resume"] == 1
    assert counts(compare(outputs, [*again, found(outputs[3], 3)])) == [0, 0, 0, 0, 1, 0]


def test_a_resume_excuses_one_copy_for_each_time_that_the_lane_came_by() -> None:
    output = expected(0, 1, 0, copies=2)
    comparison = compare([output], [found(output, n) for n in range(4)])
    assert comparison.counted["records_sent_again_by_resume"] == 1
    assert counts(comparison) == [0, 2, 0, 0, 0, 0]


def test_what_was_sent_before_it_was_parked_is_expected_as_often_as_it_was_and_so_is_its_requeued_copy() -> (
    None
):
    parked = expected(0, 1, 0, Mark.PARKED, copies=1)
    comparison = compare([parked], [found(parked, 1), found(parked, 2, replay=b"1")])
    assert (counts(comparison), comparison.counted["records_sent_before_parking"]) == ([0] * 6, 2)
    assert counts(compare([parked], [found(parked, 1), found(parked, 2)])) == [0, 0, 0, 0, 1, 0]
    requeued = parked._replace(batch_id=2, marks=Mark.DEMANDED)
    assert counts(compare([parked, requeued], [found(parked, n) for n in (1, 2)])) == [0] * 6
    assert counts(compare([parked, requeued], [found(parked, n) for n in (1, 2, 3)])) == [0, 1, 0, 0, 0, 0]


def test_a_copy_that_a_replay_sent_to_another_topic_hides_no_loss() -> None:
    output, gone = expected(0, 1, 0), expected(0, 1, 1, Mark(0))
    elsewhere = [found(one, 1, replay=b"1", topic=1) for one in (output, gone)]
    comparison = compare([output, gone], elsewhere)
    assert comparison.lost.examples == [output]
    assert comparison.counted["outputs_found"] == 0
    comparison = compare([output], [*elsewhere[:1], found(output, 2, replay=b"2")])
    assert counts(comparison) == [0] * 6
    assert comparison.counted["outputs_only_replayed"] == 1


def test_a_replay_that_sent_an_output_twice_is_found_and_two_replays_are_none() -> None:
    output = expected(0, 1, 0)
    live, first, second = found(output, 0), found(output, 1, replay=b"1"), found(output, 2, replay=b"2")
    assert counts(compare([output], [live, first, second])) == [0] * 6
    again = found(output, 3, replay=b"1")
    comparison = compare([output], [live, first, second, again])
    assert comparison.duplicated.examples == [(output, [first, again])]


@pytest.mark.guarantee(170)
def test_what_cannot_be_decided_is_told_apart_from_what_the_topic_deleted() -> None:
    expired = expected(0, 1, 0, Mark.DEMANDED | Mark.EXPIRED)
    unknown = expected(0, 1, 1, Mark.DEMANDED | Mark.BOUNDARY)
    comparison = compare([expired, unknown], [])
    assert (comparison.counted["expired_outputs"], comparison.undecidable.examples) == (1, [unknown])


def test_what_was_sent_as_a_row_of_a_batch_that_is_not_audited_is_out_of_scope() -> None:
    parked = expected(0, 1, 0, Mark.PARKED, copies=0)
    moved = expected(0, 1, 1, Mark.PARKED | Mark.REQUEUED_ELSEWHERE, copies=0)
    comparison = compare([parked, moved], [found(parked, 1), found(moved, 2)])
    assert comparison.parked.examples == [(parked, found(parked, 1))]
    assert comparison.counted["records_out_of_scope"] == 1


def test_nothing_and_empty_are_different_contents() -> None:
    contents = [
        content_of(None, b"", ()),
        content_of(b"", None, ()),
        content_of(b"", b"", ()),
        content_of(b"a", b"b", ()),
        content_of(b"", b"ab", ()),
        content_of(b"a", b"b", [("h", None)]),
        content_of(b"a", b"b", [("h", b"")]),
        content_of(b"a", b"b", [("h", b"1"), ("g", b"2")]),
        content_of(b"a", b"b", [("g", b"2"), ("h", b"1")]),
    ]
    assert len(set(contents)) == len(contents)


KEPT, GONE = range(2)


@given(st.lists(st.sampled_from([KEPT, GONE]), min_size=36, max_size=36))
def test_in_a_compacted_topic_the_newest_output_of_a_key_is_lost_and_older_ones_cannot_be_decided(
    fates: list[int],
) -> None:
    outputs = history()
    records = [
        found(output, n) for n, (output, fate) in enumerate(zip(outputs, fates, strict=True)) if fate == KEPT
    ]
    newest = {output.record_key: (output, fate) for output, fate in zip(outputs, fates, strict=True)}
    lost = [output for output, fate in newest.values() if fate == GONE]
    comparison = compare_compacted(outputs, records)
    assert names(comparison.lost) == [output.identity for output in lost]
    assert comparison.undecidable.count == fates.count(GONE) - len(lost)


def test_in_a_compacted_topic_nothing_is_lost_that_something_else_may_have_superseded() -> None:
    older, newest = expected(0, 1, 0), expected(0, 2, 0)
    kept = [found(older, 1)]

    def lost(
        outputs: list[ExpectedOutput], records: list[ReceivedOutput], shared: frozenset[int] = frozenset()
    ) -> int:
        comparison = compare_compacted(outputs, records, shared)
        assert comparison.lost.count + comparison.undecidable.count == 1
        return comparison.lost.count

    assert lost([older, newest], kept) == 1
    assert lost([older, newest], kept, frozenset([0])) == 0, "others write to the topic"
    assert lost([older, newest], [*kept, found(older, 2, replay=b"1")]) == 0, "a replay came after it"
    assert lost([older, newest._replace(marks=newest.marks | Mark.TOMBSTONE)], kept) == 0
    assert lost([older, newest._replace(marks=newest.marks | Mark.LATER_UNKNOWN)], kept) == 0
    assert lost([older, newest, expected(0, 3, 0, Mark(0))], kept) == 0, "one that may just have been sent"
    of_another = expected(1, 1, 0)._replace(record_key=newest.record_key)
    assert lost([older, newest, of_another], [*kept, found(of_another, 3)]) == 0, "lanes have no order"


def test_what_a_resume_skipped_has_superseded_nothing() -> None:
    sent, skipped = expected(0, 1, 0), expected(0, 2, 0, Mark.DEMANDED | Mark.SKIPPED)
    comparison = compare_compacted([sent, skipped], [])
    assert (names(comparison.lost), names(comparison.skipped)) == ([sent.identity], [skipped.identity])


def test_records_of_others_and_copies_without_end_are_counted_and_not_kept() -> None:
    def records() -> Iterator[ReceivedOutput]:
        for offset in range(20_000):
            yield found(expected(7, offset, 0), offset)
            yield found(output, 100_000 + offset)

    output = expected(1, 1, 0)
    tracemalloc.start()
    try:
        comparison = Comparison(rule=lambda record: None, on_lost=lambda lost: None)
        comparison.compare_bucket([output], records())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert counts(comparison) == [0, 19_999, 0, 20_000, 0, 0]
    assert peak < 2 << 20


def test_nobody_can_find_two_keys_that_every_audit_takes_for_one() -> None:
    assert short_hash(b"anna", b"1") != short_hash(b"anna", b"2")
