"""Compares the outputs that a consumer remembers with the delivered ones, bucket by bucket. Pure.

An output counts as delivered if a topic has a record of it, or if its lane has passed its row without parking or skipping it. Memory
holds one bucket: the outbox's outputs and their records. Other outputs that a consumer remembers are only counted.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from struct import Struct
from typing import NamedTuple

from publisher.audit.findings import FindingTally
from publisher.audit.readback.compare import MOST_COPIES
from publisher.audit.readback.digest import NONE, NOT_REPLAYED, ExpectedOutput, Mark, ReceivedOutput
from publisher.audit.readback.unexpected import UnexpectedRecordRule

CONSUMED = Struct("<16sqqiiHiqqB")
VISITED = Struct("<Hiqq")
UNKNOWN = 0xFFFF
"""The number of a topic that the outbox does not know."""

Partition = tuple[int, int]
"""(topic number, partition)"""
Key = tuple[int, int, int]
"""(input partition, end offset, output): an outbox-id."""


class Remembered(NamedTuple):
    """What a consumer remembers of an output: the record that it consumed or set aside."""

    identity: bytes
    input_partition: int
    """See `partition_number`."""
    end_offset: int
    output: int
    revision: int
    topic: int
    partition: int
    offset: int
    at_us: int
    kind: int

    @property
    def key(self) -> Key:
        """The outbox-id in numbers, the same for every revision."""
        return self.input_partition, self.end_offset, self.output

    @property
    def record(self) -> tuple[int, int, int]:
        """The record from which the output was consumed."""
        return self.topic, self.partition, self.offset


ONCE, RETRIED, SET_ASIDE = range(3)
"""The kinds: consumed in its turn, consumed later by `retry`, not consumed."""


class Visited(NamedTuple):
    """An output that was consumed in its turn, from a record that its topic still has."""

    topic: int
    partition: int
    offset: int
    at_us: int


class Range(NamedTuple):
    """The records of a partition that a consumer has consumed: from its first offset up to its position."""

    first: int
    end: int


@dataclass(slots=True)
class ConsumerComparison:
    """The result of the buckets for one consumer. `rule` decides about each output that no audited row explains.

    `ends`: for each topic number, the end offsets of its partitions when the audit began; a partition without an entry was added later. A
    topic without partitions was first delivered to later; a topic that does not exist any more has no entry.
    `forgotten`: {input partition: end of the last session with forgotten outputs}. `remembers`: whether the consumer has tables. Without
    tables, all records below its position count as consumed.
    """

    positions: Mapping[Partition, Range]
    ends: Mapping[int, Mapping[int, int]]
    rule: UnexpectedRecordRule
    forgotten: Mapping[int, int] = field(default_factory=dict)
    remembers: bool = True
    missing: FindingTally[ReceivedOutput] = field(default_factory=FindingTally)
    twice: FindingTally[Remembered] = field(default_factory=FindingTally)
    undelivered: FindingTally[Remembered] = field(default_factory=FindingTally)
    disordered: FindingTally[Visited] = field(default_factory=FindingTally)
    set_aside: FindingTally[Remembered] = field(default_factory=FindingTally)
    behind: dict[Partition, int] = field(default_factory=lambda: defaultdict(int))
    expired: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    """{topic number: how many revisions of outputs the topic has deleted and the consumer does not remember}."""
    counted: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def compare_bucket(
        self,
        expected: Iterable[ExpectedOutput],
        found: Iterable[ReceivedOutput],
        remembered: Iterable[Remembered],
    ) -> Iterator[Visited]:
        """Compare one bucket; yield the outputs consumed in their turn, for `compare_order`."""
        delivered: dict[bytes, bool] = {}
        expired: dict[bytes, int] = {}
        topics = {topic for topic, _ in self.positions} if self.remembers else set()
        for output in expected:
            sent = output.marks & (Mark.DEMANDED | Mark.PARKED | Mark.SKIPPED) == Mark.DEMANDED
            delivered[output.identity] = sent
            if sent and output.marks & Mark.EXPIRED and output.topic in topics:
                expired[output.identity] = output.topic
        records: dict[Key, list[ReceivedOutput]] = {}
        for record in found:
            if record.identity not in delivered:
                continue
            expired.pop(record.identity, None)
            delivered[record.identity] = True
            copies = records.setdefault((record.input_partition, record.input_offset, record.output), [])
            if len(copies) < MOST_COPIES:
                copies.append(record)
        present = {
            (copy.topic, copy.partition, copy.offset) for copies in records.values() for copy in copies
        }
        consumed: dict[Key, Remembered] = {}
        aside: set[tuple[int, int, int]] = set()
        for each in remembered:
            if each.kind == SET_ASIDE:
                self.set_aside.add(each)
                if each.key in records and each.record in present:
                    aside.add(each.record)
                continue
            expired.pop(each.identity, None)
            if each.key in consumed:
                self.twice.add(each)
            elif each.identity in delivered or each.key in records:
                consumed[each.key] = each
            self._explain(each, delivered)
            if each.kind == ONCE and any(
                copy.identity == each.identity and (copy.topic, copy.partition, copy.offset) == each.record
                for copy in records.get(each.key, ())
            ):
                yield Visited(*each.record, each.at_us)
        for topic in expired.values():
            self.expired[topic] += 1
        for key, copies in records.items():
            for copy in copies:
                self._demand(copy, consumed.get(key), aside)

    def compare_order(self, visits: Iterable[Visited], newest: int) -> int:
        """Check that outputs of a partition were consumed in the order of their offsets. `newest`: the newest time at lower offsets.

        Return the newest time so far.
        """
        for visit in sorted(visits):
            if visit.at_us < newest:
                self.disordered.add(visit)
            newest = max(newest, visit.at_us)
        return newest

    def _explain(self, each: Remembered, delivered: Mapping[bytes, bool]) -> None:
        was_sent = delivered.get(each.identity)
        ends = self.ends.get(each.topic)
        if ends is not None and each.offset >= ends.get(each.partition, 0):
            self.counted["consumed_during_the_audit"] += 1
        elif was_sent:
            self.counted["outputs_consumed"] += 1
        elif was_sent is None and (name := self._unexplained(each)) is not None:
            self.counted[name] += 1
        else:
            self.undelivered.add(each)

    def _unexplained(self, each: Remembered) -> str | None:
        if each.input_partition == NONE:
            return "consumed_of_other_outboxes"
        name = self.rule(
            ReceivedOutput(
                each.identity, b"", each.topic, each.partition, each.offset, NONE, each.revision, each.end_offset,
                each.input_partition, NOT_REPLAYED, each.output,
            )
        )  # fmt: skip
        return None if name is None else f"consumed_{name.removeprefix('records_')}"

    def _demand(
        self, copy: ReceivedOutput, consumed: Remembered | None, aside: set[tuple[int, int, int]]
    ) -> None:
        """Count a record as missing, unless its output was consumed in this or a later revision, or need not be."""
        position = self.positions.get((copy.topic, copy.partition))
        if position is None or copy.offset < position.first:
            self.counted["records_not_subscribed_to"] += 1
        elif copy.offset >= position.end:
            self.behind[copy.topic, copy.partition] += 1
        elif not self.remembers:
            self.counted["records_below_the_position"] += 1
        elif consumed is not None and consumed.revision >= copy.revision:
            if consumed.revision > copy.revision:
                self.counted["records_superseded_by_reissue"] += 1
            elif consumed.record != (copy.topic, copy.partition, copy.offset):
                name = "replays" if copy.replayed else "repetitions"
                self.counted[f"{name}_dropped"] += 1
        elif (copy.topic, copy.partition, copy.offset) in aside:
            pass  # the outputs that were set aside are counted elsewhere
        elif copy.input_offset <= self.forgotten.get(copy.input_partition, NONE):
            self.counted["forgotten_by_the_consumer"] += 1
        else:
            self.missing.add(copy)
