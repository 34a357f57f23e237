"""The audit of a consumer: spreads its rows over the buckets of outputs and records, and compares them.

1. The topics are read up to their frozen ends. The outbox is read further than that (`readback`).
2. Only then each consumer is read, in one snapshot. Outputs that it consumed beyond the ends are only counted.
So the consumer, the publisher and the job may run during the audit.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from contract.positions import OutboxId
from outbox_consumer.reading import ConsumerPosition
from publisher.audit.consumer.compare import (
    CONSUMED,
    UNKNOWN,
    VISITED,
    ConsumerComparison,
    Partition,
    Range,
    Remembered,
    Visited,
)
from publisher.audit.consumer.rows import ConsumerRow, forgotten, is_readable, remembered
from publisher.audit.findings import Check, FindingTally
from publisher.audit.readback.digest import NONE, ExpectedOutput, ReceivedOutput, bucket_of
from publisher.audit.readback.spill import Spill
from publisher.audit.readback.state import AuditState
from publisher.audit.readback.topics import Broker
from publisher.audit.readback.unexpected import UnexpectedRecordRule
from publisher.trace.consumers import consumer_tables, is_database
from service.errors import SettingsError

T = TypeVar("T")

_OFFSETS_A_BUCKET = 250_000
_MOST_BUCKETS = 20_000
_AT_ONCE = 10_000


class ReadBack(NamedTuple):
    """The outputs and records that the audit has read. `rule`: see `Comparison`."""

    state: AuditState
    folder: Path
    expected: Spill
    found: Spill
    rule: UnexpectedRecordRule


class ConsumerAudit(NamedTuple):
    """The findings over all consumers of a database."""

    checks: list[Check]
    counted: dict[str, int]


class _Consumer(NamedTuple):
    """What was read of one consumer. `rows`: the outputs that it remembers, None if it has no tables."""

    name: str
    positions: list[ConsumerPosition]
    forgotten: Mapping[int, int]
    rows: Spill | None


def check_consumed(
    consumed: str, read: ReadBack, broker: Broker, phase: Callable[[str, int], Callable[[int], None]]
) -> ConsumerAudit:
    """Compare the consumers of a database, or the offsets of a group. Raises SettingsError, UnavailableError."""
    findings = _Findings(read.state)
    consumers = (
        _of_database(consumed, read, phase, findings.unreadable)
        if is_database(consumed)
        else iter([_of_group(consumed, read, broker)])
    )
    for each in consumers:
        topic_ids = {topic.name: topic.topic_id for topic in broker.describe(read.state.topics)}
        ranges = findings.ranges(each.positions, topic_ids)
        findings.add(each.name, _compare(each, ranges, read, phase))
    return ConsumerAudit(findings.checks(), findings.counted)


def _of_database(
    consumed: str,
    read: ReadBack,
    phase: Callable[[str, int], Callable[[int], None]],
    unreadable: Callable[[str, str], None],
) -> Iterator[_Consumer]:
    """Yield each consumer of a database. No transaction stays open in the database, because Postgres would end one that is idle for
    long."""
    state = read.state
    with consumer_tables(consumed, "publisher audit") as tables:
        names = list(dict.fromkeys(each.consumer for each in tables.positions() or ()))
    if not names:
        raise SettingsError(
            "--consumed names a database without a position of `outbox_consumer`: name the database whose "
            "connection `consume` gets"
        )
    for name in names:
        tell = partial(unreadable, name)
        spill = Spill(read.folder, "consumed", CONSUMED, state.buckets)
        spill.restore([])
        with consumer_tables(consumed, "publisher audit") as tables:
            positions = [each for each in tables.positions() or () if each.consumer == name]
            gone = forgotten(tables, name, state, tell)
            advance = phase(f"reading consumer {name}", tables.count(name))
            _spill(remembered(tables, name, state, tell), spill, bytes.fromhex(state.seed), advance)
        yield _Consumer(name, positions, gone, spill)


def _of_group(group: str, read: ReadBack, broker: Broker) -> _Consumer:
    positions = broker.group_positions(group, read.state.topics)
    if not positions:
        raise SettingsError(
            f"the consumer group {group!r} has committed no offset in an output topic. A database is named by its DSN, as "
            "postgresql://… or sqlite:///PATH"
        )
    return _Consumer(group, positions, {}, None)


def _compare(
    consumer: _Consumer,
    ranges: Mapping[Partition, Range],
    read: ReadBack,
    phase: Callable[[str, int], Callable[[int], None]],
) -> ConsumerComparison:
    state = read.state
    compared = ConsumerComparison(
        positions=ranges,
        ends={
            topic: {int(partition): end for partition, end in offsets.items()}
            for topic, offsets in enumerate(state.ends)
            if offsets
        }
        | {topic: {} for topic in range(len(state.ends), len(state.topics))},
        rule=read.rule,
        forgotten=consumer.forgotten,
        remembers=consumer.rows is not None,
    )
    order = _Order(read.folder, state)
    advance = phase(f"comparing consumer {consumer.name}", state.buckets)
    for bucket in range(state.buckets):
        for visit in compared.compare_bucket(
            map(ExpectedOutput._make, read.expected.read(bucket)),
            map(ReceivedOutput._make, read.found.read(bucket)),
            map(Remembered._make, () if consumer.rows is None else consumer.rows.read(bucket)),
        ):
            order.add(visit)
        advance(1)
    order.compare(compared)
    return compared


def _spill(rows: Iterable[ConsumerRow], spill: Spill, seed: bytes, advance: Callable[[int], None]) -> None:
    done = 0
    for row in rows:
        spill.append(bucket_of(row.session, spill.buckets, seed), row.packed)
        done += 1
        if done == _AT_ONCE:
            advance(done)
            done = 0
    advance(done)


class _Order:
    """The outputs that were consumed in their turn, spread over ranges of offsets. Each range fits in memory."""

    def __init__(self, folder: Path, state: AuditState) -> None:
        total = sum(
            end - state.begins[topic].get(partition, 0)
            for topic, offsets in enumerate(state.ends)
            for partition, end in offsets.items()
        )
        self._width = max(_OFFSETS_A_BUCKET, total // (_MOST_BUCKETS // 2))
        self._first: dict[Partition, tuple[int, int]] = {}
        self._buckets: list[Partition] = []
        for topic, offsets in enumerate(state.ends):
            for partition, end in offsets.items():
                begin = state.begins[topic].get(partition, 0)
                self._first[topic, int(partition)] = (len(self._buckets), begin)
                self._buckets += [(topic, int(partition))] * (1 + (end - begin) // self._width)
        self._spill = Spill(folder, "visited", VISITED, len(self._buckets))
        self._spill.restore([])

    def add(self, visit: Visited) -> None:
        bucket, begin = self._first[visit.topic, visit.partition]
        self._spill.append(bucket + (visit.offset - begin) // self._width, VISITED.pack(*visit))

    def compare(self, compared: ConsumerComparison) -> None:
        newest: dict[Partition, int] = {}
        for bucket, partition in enumerate(self._buckets):
            visits = map(Visited._make, self._spill.read(bucket))
            newest[partition] = compared.compare_order(visits, newest.get(partition, 0))


class _Findings:
    """Collects the findings of all consumers as checks with readable examples."""

    def __init__(self, state: AuditState) -> None:
        self._state = state
        self.counted: dict[str, int] = {}
        self._rows = Check("consumer_rows", "Can each row of the consumer's tables be read?")
        self._topics = Check("consumer_topics", "Does each position belong to the topic that exists now?")
        self._deleted = Check("deleted_unconsumed", "Do the topics still have all unconsumed records?")
        self._missing = Check(
            "not_consumed", "Has the consumer consumed every delivered output below its position?"
        )
        self._twice = Check("consumed_twice", "Did the consumer consume each output once?")
        self._undelivered = Check("consumed_undelivered", "Was every consumed output delivered?")
        self._order = Check(
            "consumed_order", "Were the outputs of each partition consumed in the order of their offsets?"
        )
        self._behind = Check("unconsumed", "Do delivered outputs wait to be consumed?", fails=False)
        self._expired = Check(
            "expired_unconsumed",
            "Does the consumer remember the outputs that its topics have deleted?",
            fails=False,
        )
        self._aside = Check("set_aside", "Did the consumer set outputs aside?", fails=False)

    def checks(self) -> list[Check]:
        return [
            self._rows,
            self._topics,
            self._deleted,
            self._missing,
            self._twice,
            self._undelivered,
            self._order,
            self._behind,
            self._expired,
            self._aside,
        ]

    def unreadable(self, consumer: str, row: str) -> None:
        """Count a row that cannot be read."""
        self._rows.add(f"{consumer}: {row}")

    def ranges(
        self, positions: Iterable[ConsumerPosition], topic_ids: Mapping[str, str | None]
    ) -> dict[Partition, Range]:
        """Return the range of offsets that was consumed in each partition of the present topics. Count offsets that were deleted
        unconsumed."""
        found = {}
        topics = {name: number for number, name in enumerate(self._state.topics)}
        for each in positions:
            if not is_readable(each):
                self.unreadable(each.consumer, f"outbox_consumer_position: {each._asdict()}")
                continue
            number = topics.get(each.topic)
            if number is None:
                continue
            where = f"{each.consumer}: {each.topic}[{each.partition}]"
            if topic_ids.get(each.topic) != each.topic_id:
                self._topics.add(f"{where}: its position is of another topic, with id {each.topic_id}")
                continue
            # Topics that only rows name follow those that were read.
            lows = self._state.lows or []
            low = lows[number].get(str(each.partition)) if number < len(lows) else None
            if low is None:
                continue  # The topic or partition was not read: its first record came after the audit began.
            if each.next_offset < low:
                self._deleted.add(
                    f"{where}: offsets {each.next_offset} to {low - 1} were deleted before they were consumed",
                    low - each.next_offset,
                )
            found[number, each.partition] = Range(each.first_offset, each.next_offset)
        return found

    def add(self, consumer: str, compared: ConsumerComparison) -> None:
        for name, count in compared.counted.items():
            self.counted[name] = self.counted.get(name, 0) + count
        _add(self._missing, consumer, compared.missing, self._of_record)
        _add(self._twice, consumer, compared.twice, self._of_row)
        _add(self._undelivered, consumer, compared.undelivered, self._of_row)
        _add(self._order, consumer, compared.disordered, self._of_visit)
        _add(self._aside, consumer, compared.set_aside, self._of_row)
        for (topic, partition), count in sorted(compared.behind.items()):
            self._behind.add(f"{consumer}: {self._state.topics[topic]}[{partition}]: {count} records", count)
        for topic, count in sorted(compared.expired.items()):
            self._expired.add(f"{consumer}: {self._state.topics[topic]}: {count} outputs", count)

    def _of_record(self, copy: ReceivedOutput) -> str:
        name = self._id(copy.input_partition, copy.input_offset, copy.output, copy.revision)
        return f"{name} at {self._where(copy.topic, copy.partition, copy.offset)}"

    def _of_row(self, row: Remembered) -> str:
        name = self._id(row.input_partition, row.end_offset, row.output, row.revision)
        return f"{name} at {self._where(row.topic, row.partition, row.offset)}"

    def _of_visit(self, visit: Visited) -> str:
        return f"{self._where(visit.topic, visit.partition, visit.offset)} was consumed before a lower offset"

    def _id(self, input_partition: int, end_offset: int, output: int, revision: int) -> str:
        topic = "?" if input_partition == NONE else self._state.inputs[input_partition >> 32]
        name = OutboxId(topic, input_partition & 0xFFFFFFFF, end_offset, output)
        return f"{name} revision {revision}" if revision else f"{name}"

    def _where(self, topic: int, partition: int, offset: int) -> str:
        name = "another topic" if topic == UNKNOWN else self._state.topics[topic]
        return f"{name}[{partition}]@{offset}"


def _add(check: Check, consumer: str, tally: FindingTally[T], text: Callable[[T], str]) -> None:
    """Add a consumer's findings to a check."""
    check.count += tally.count
    for finding in tally.examples:
        check.add(f"{consumer}: {text(finding)}", 0)
