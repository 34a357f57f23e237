"""Decides what is lost, duplicated, altered or out of order. Compares the outbox with the topics, bucket by bucket.

A bucket holds all outputs of its sessions, so comparing one bucket decides everything but the order of a key's sessions. While a bucket is
compared, memory holds all its outputs and at most `MOST_COPIES` records of each. Records that no output explains are counted, and the first
ones are kept as examples. To check the order of a key's sessions, the audit writes one `Visit` for each session and topic partition into
buckets by session key; a second round compares these. Compacted topics need another round, by record key: Kafka keeps only the newest
record of a key there, so only that record must be found.

An output is lost if its lane's mirror has passed it (`Mark.DEMANDED`), its topic has no record of it, and it is not skipped, expired or
undecidable.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from struct import Struct
from typing import NamedTuple

from publisher.audit.findings import FindingTally
from publisher.audit.readback.digest import NONE, ExpectedOutput, Mark, ReceivedOutput
from publisher.audit.readback.unexpected import UnexpectedRecordRule

VISIT = Struct("<8sHiqiiqq")

MOST_COPIES = 1_000
"""The most records of one outbox-id that are kept in memory. Resumes and replays send fewer."""


class Visit(NamedTuple):
    """The records of one session in one topic partition, without replayed copies: the numbers of its first and last output, and the lowest
    and highest offset."""

    session_key: bytes
    topic: int
    partition: int
    batch_id: int
    event: int
    last_event: int
    offset: int
    last_offset: int


class Disorder(NamedTuple):
    """Two outputs of a session key whose records are in the opposite order. `former`, `later`: (batch id, output number)."""

    topic: int
    partition: int
    former_offset: int
    former: tuple[int, int]
    later_offset: int
    later: tuple[int, int]


class Alteration(NamedTuple):
    """A record that differs from its output. `fields`: the fields that differ, as far as the digests show it."""

    expected: ExpectedOutput
    found: ReceivedOutput
    fields: tuple[str, ...]


EventsAt = dict[tuple[bytes, int, int, int, int, int], list[tuple[int, int]]]
"""{(session key, batch, input partition and offset of the session's end, topic, partition): [(event, offset) of each output with exactly
one record that no replay sent]}."""


@dataclass(slots=True)
class Comparison:
    """The result of the buckets. `rule` decides about each record that no output explains. `on_lost` receives, for each bucket, the lost
    outputs that a replay may send again. `compacted`: numbers of the compacted topics. `shared`: numbers of the topics that also hold
    records of other writers, or of erased outputs."""

    rule: UnexpectedRecordRule
    on_lost: Callable[[list[ExpectedOutput]], None]
    compacted: frozenset[int] = frozenset()
    shared: frozenset[int] = frozenset()
    lost: FindingTally[ExpectedOutput] = field(default_factory=FindingTally)
    duplicated: FindingTally[tuple[ExpectedOutput, list[ReceivedOutput]]] = field(
        default_factory=FindingTally
    )
    altered: FindingTally[Alteration] = field(default_factory=FindingTally)
    unexpected: FindingTally[ReceivedOutput] = field(default_factory=FindingTally)
    parked: FindingTally[tuple[ExpectedOutput, ReceivedOutput]] = field(default_factory=FindingTally)
    disordered: FindingTally[Disorder] = field(default_factory=FindingTally)
    skipped: FindingTally[ExpectedOutput] = field(default_factory=FindingTally)
    undecidable: FindingTally[ExpectedOutput] = field(default_factory=FindingTally)
    counted: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def compare_bucket(
        self, expected: Iterable[ExpectedOutput], found: Iterable[ReceivedOutput]
    ) -> tuple[list[Visit], list[ExpectedOutput]]:
        """Compare one bucket. Return the visits for `compare_order` and the outputs of compacted topics for `compare_compacted`."""
        outputs: dict[bytes, ExpectedOutput] = {}
        parked: dict[bytes, ExpectedOutput] = {}
        for output in expected:
            (parked if output.marks & Mark.PARKED else outputs).setdefault(output.identity, output)
        records: dict[bytes, list[ReceivedOutput]] = {}
        for record in found:
            known = outputs.get(record.identity) or parked.get(record.identity)
            if known is None:
                self._unexplained(None, [record])
                continue
            copies = records.setdefault(record.identity, [])
            if len(copies) < MOST_COPIES:
                copies.append(record)
            elif known.marks & Mark.PARKED:
                self.parked.add((known, record))
            else:
                self.duplicated.add((known, [record]))
        events_at: EventsAt = {}
        missing, of_compacted = [], []
        for identity, copies in records.items():
            matched = outputs.get(identity)
            if matched is None:
                self._unexplained(parked.get(identity), copies)
            else:
                self._explained(matched, parked.get(identity), copies, events_at)
        for identity, output in outputs.items():
            copies = records.get(identity, [])
            is_missing = bool(output.marks & Mark.DEMANDED) and not _is_there(output, copies)
            if output.topic in self.compacted:
                of_compacted.append(_kept_by_compaction(output, copies, is_missing))
            elif is_missing:
                missing.append(output)
        of_compacted += [
            output for output in parked.values() if output.copies and output.topic in self.compacted
        ]
        lost = [output for output in missing if not self._excused(output)]
        for output in lost:
            self.lost.add(output)
        if lost:
            self.on_lost(lost)
        return self._visits(events_at), of_compacted

    def compare_compacted(self, outputs: Iterable[ExpectedOutput]) -> None:
        """Compare all outputs of some record keys. An output is lost if it is the newest of its record key and no other record can have
        superseded it. No command sends it again: a replay sends whole rows, and could write older values of other keys after newer ones."""
        of_keys: dict[tuple[int, bytes], list[ExpectedOutput]] = {}
        for output in outputs:
            of_keys.setdefault((output.topic, output.record_key), []).append(output)
        for (topic, _), group in of_keys.items():
            missing = [output for output in group if output.marks & Mark.MISSING]
            if not missing:
                continue
            sent = [output for output in group if not output.marks & Mark.SKIPPED]
            newest = max(sent, key=_order, default=None)
            # Rows of different session keys have no order: any of them may have been sent last.
            certain = topic not in self.shared and len({output.session_key for output in sent}) == 1
            certain = certain and not any(output.marks & Mark.REPLAYED for output in group)
            for output in missing:
                if self._excused(output):
                    continue
                superseded = not certain or output is not newest
                if superseded or output.marks & (Mark.TOMBSTONE | Mark.LATER_UNKNOWN):
                    self.undecidable.add(output)
                else:
                    self.lost.add(output)

    def compare_order(self, visits: Iterable[Visit]) -> None:
        """Compare the order of the sessions of some keys with the order of their records in each topic partition."""
        visits_of: dict[tuple[bytes, int, int], list[Visit]] = {}
        for visit in visits:
            visits_of.setdefault((visit.session_key, visit.topic, visit.partition), []).append(visit)
        for sessions in visits_of.values():
            sessions.sort(key=lambda visit: (visit.batch_id, visit.event))
            for former, later in pairwise(sessions):
                if later.offset < former.last_offset:
                    self.disordered.add(
                        Disorder(
                            later.topic,
                            later.partition,
                            former.last_offset,
                            (former.batch_id, former.last_event),
                            later.offset,
                            (later.batch_id, later.event),
                        )
                    )

    def _visits(self, events_at: EventsAt) -> list[Visit]:
        visits = []
        for (session_key, batch_id, _, _, topic, partition), events in events_at.items():
            events.sort()
            for former, later in pairwise(events):
                if later[1] < former[1]:
                    self.disordered.add(
                        Disorder(
                            topic, partition, former[1], (batch_id, former[0]), later[1], (batch_id, later[0])
                        )
                    )
            offsets = [offset for _, offset in events]
            visits.append(
                Visit(
                    session_key,
                    topic,
                    partition,
                    batch_id,
                    events[0][0],
                    events[-1][0],
                    min(offsets),
                    max(offsets),
                )
            )
        return visits

    def _excused(self, output: ExpectedOutput) -> bool:
        """Whether a missing output is explained; if so, count it."""
        if output.marks & Mark.SKIPPED:
            self.skipped.add(output)
        elif output.marks & Mark.EXPIRED:
            self.counted["expired_outputs"] += 1
        elif output.marks & Mark.BOUNDARY:
            self.undecidable.add(output)
        else:
            return False
        return True

    def _unexplained(self, parked: ExpectedOutput | None, copies: list[ReceivedOutput]) -> None:
        sent = 0
        for record in copies:
            if parked is not None and parked.marks & Mark.REQUEUED_ELSEWHERE:
                self.counted["records_out_of_scope"] += 1
                continue
            if parked is not None and (sent < parked.copies or (sent and record.replayed)):
                # The row was sent. Then a resume moved the lane back to before the row, and only the second time Kafka refused it.
                self.counted["records_sent_before_parking"] += 1
                sent += not record.replayed
                continue
            if parked is not None:
                self.parked.add((parked, record))
                continue
            explanation = self.rule(record)
            if explanation is None:
                self.unexpected.add(record)
            else:
                self.counted[explanation] += 1

    def _explained(
        self,
        output: ExpectedOutput,
        parked: ExpectedOutput | None,
        copies: list[ReceivedOutput],
        events_at: EventsAt,
    ) -> None:
        """Compare the records of an output. `parked`: the parked original, if the output's row is a requeued copy."""
        originals = (
            [copy for copy in copies if not copy.replayed]
            if len(copies) > 1 or copies[0].replayed
            else copies
        )
        if len(originals) > 1:
            again = output.copies + (0 if parked is None else parked.copies) - 1
            self.counted["records_sent_again_by_resume"] += min(again, len(originals) - 1)
            if len(originals) - 1 > again:
                self.duplicated.add((output, originals), len(originals) - 1 - again)
        elif originals:
            record = originals[0]
            there = (
                output.session_key,
                output.batch_id,
                record.input_partition,
                record.input_offset,
                record.topic,
                record.partition,
            )
            events_at.setdefault(there, []).append((output.event, record.offset))
        if _is_there(output, copies):
            self.counted["outputs_found"] += 1
            self.counted["outputs_only_replayed"] += not originals
        if len(originals) < len(copies):
            self._replayed(output, copies)
        for copy in copies:
            fields = _differences(output, copy)
            if fields:
                self.altered.add(Alteration(output, copy, fields))

    def _replayed(self, output: ExpectedOutput, copies: list[ReceivedOutput]) -> None:
        """Count all records of a replay after its first one as duplicates."""
        sent: dict[bytes, list[ReceivedOutput]] = {}
        for copy in copies:
            if copy.replayed:
                sent.setdefault(copy.replay, []).append(copy)
        for of_one in sent.values():
            if len(of_one) > 1:
                self.duplicated.add((output, of_one), len(of_one) - 1)


def _is_there(output: ExpectedOutput, copies: list[ReceivedOutput]) -> bool:
    """Whether the output's topic has a record of it. A copy that a replay sent to another topic does not count."""
    return any(not copy.replayed or copy.topic == output.topic for copy in copies)


def _kept_by_compaction(
    output: ExpectedOutput, copies: list[ReceivedOutput], is_missing: bool
) -> ExpectedOutput:
    """Return the output with the marks of its records that `compare_compacted` needs."""
    marks = output.marks | (Mark.MISSING if is_missing else 0)
    if any(copy.replayed and copy.topic == output.topic for copy in copies):
        marks |= Mark.REPLAYED
    return output._replace(marks=marks)


def _order(output: ExpectedOutput) -> tuple[int, int]:
    """Return the position of an output among the outputs of its session key."""
    return output.batch_id, output.event


def _differences(output: ExpectedOutput, record: ReceivedOutput) -> tuple[str, ...]:
    """Return the names of the fields that differ. A replayed copy may have been sent to another topic, partition or time on purpose."""
    fields = []
    if output.content != record.content:
        fields.append("content")
    if record.replayed:
        return tuple(fields)
    if output.topic != record.topic:
        fields.append("topic")
    elif output.partition not in (NONE, record.partition):
        fields.append("partition")
    if NONE not in (output.timestamp_ms, record.timestamp_ms) and output.timestamp_ms != record.timestamp_ms:
        fields.append("timestamp")
    return tuple(fields)
