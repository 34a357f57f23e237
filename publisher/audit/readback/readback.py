"""The audit of the topics: reads them back, reads the outbox, and compares both bucket by bucket.

1. `Scope` freezes each lane's position. The rows that the lane has passed must be in Kafka, unless they are parked or a resume skipped
them.
2. The end offsets of the topics are read. The records of those rows are below them.
3. The id of the newest batch is read. Every record below the end offsets belongs to that batch or to an older one.
So publishing may continue during the audit. The low watermarks are read again after the records, so that a record that a topic deleted
meanwhile does not count as lost.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from db.statements import queries
from publisher.audit.consumer.checks import ReadBack, check_consumed
from publisher.audit.erased import read_ends, read_topics
from publisher.audit.findings import Check
from publisher.audit.readback import state as states
from publisher.audit.readback.compare import VISIT, Comparison, Visit
from publisher.audit.readback.digest import EXPECTED, RECEIVED, ExpectedOutput, ReceivedOutput
from publisher.audit.readback.expected import ExpectedReader
from publisher.audit.readback.explain import Explainer
from publisher.audit.readback.received import ReceivedReader
from publisher.audit.readback.rows_to_send_again import LostRows, mending_command
from publisher.audit.readback.spill import Spill
from publisher.audit.readback.state import AuditState
from publisher.audit.readback.topics import Broker, Offsets, Topic
from publisher.audit.readback.unexpected import unexpected_record_rule
from publisher.audit.scope import Scope
from publisher.outbox.identity import OutboxIdentity
from service.errors import SettingsError
from service.settings import Settings

_DELIVERIES = queries("publisher.audit", "deliveries")
_LEDGER = queries("publisher.audit", "ledger")

_EVENTS_A_BUCKET = 250_000
_MOST_BUCKETS = 20_000
_ORDER_BUCKETS = 64

Phase = Callable[[str, int], Callable[[int], None]]
"""Begins a phase with this many steps on the progress bar. Returns a function that takes the number of steps done since its last call."""


class KafkaAudit(NamedTuple):
    """The result of the comparison with the topics. `mend`: the command that sends lost outputs again."""

    checks: list[Check]
    counted: dict[str, int]
    mend: str | None


def begin(
    connection: psycopg.Connection[Any],
    settings: Settings,
    identity: OutboxIdentity,
    scope: Scope,
    asked: dict[str, Any],
    events: int,
) -> AuditState:
    """Freeze what the audit compares: steps 2 and 3. `events`: the approximate number of outputs."""
    broker = Broker(settings.kafka)
    cluster = broker.cluster_id()
    if identity.cluster_id is not None and cluster != identity.cluster_id:
        raise SettingsError(
            f"this outbox delivers to Kafka cluster {identity.cluster_id}, but [kafka] bootstrap_servers leads to {cluster}. "
            "Correct it (OUTBOX_KAFKA__BOOTSTRAP_SERVERS)"
        )
    topics = broker.describe(sorted(identity.output_topic_ids))
    replaced = [t.name for t in topics if t.topic_id not in (None, identity.output_topic_ids[t.name])]
    ends, lows = broker.ends(topics), broker.lows(topics)
    begins = lows if scope.complete else first_offsets(connection, scope, topics, lows, ends, set(replaced))
    known_to = max(scope.last, _newest(connection)) if scope.to_end else scope.last
    epochs = connection.execute(_LEDGER["epochs"]).fetchall()
    records = sum(sum(ends[n].values()) - sum(begins[n].values()) for n in range(len(topics)))
    return AuditState(
        asked=asked,
        scope=replace(scope, epochs=epochs).as_json(),
        known_to=known_to,
        topics=[topic.name for topic in topics],
        buckets=buckets_for(events, records),
        replaced=replaced,
        missing=[topic.name for topic in topics if topic.topic_id is None],
        compacted=sorted(broker.compacted(topics)),
        begins=begins,
        ends=ends,
        next_offsets=[dict(offsets) for offsets in begins],
        next_batch=scope.first,
    )


def buckets_for(events: int, records: int) -> int:
    """Return the number of buckets for these outputs and records. There may be more records than outputs, because others may write to the
    topics."""
    return min(_MOST_BUCKETS, 1 + max(events, records) // _EVENTS_A_BUCKET)


def first_offsets(
    connection: psycopg.Connection[Any],
    scope: Scope,
    topics: list[Topic],
    lows: Offsets,
    ends: Offsets,
    replaced: set[str],
) -> Offsets:
    """Return the first offset of the audited deliveries in each partition, or its low watermark if that offset is unknown."""
    bounds = {"from_batch": scope.first}
    unknown = connection.execute(_DELIVERIES["unknown_offsets"], bounds).fetchone()
    moved = any(max(resume.after, resume.to).batch_id >= scope.first for resume in scope.resumes)
    if unknown is None or unknown[0] or moved:
        # A resume may have accepted a new topic; offsets recorded before that belong to the former topic.
        return [dict(offsets) for offsets in lows]
    first: dict[tuple[str, str | None], int] = {
        (topic, partition): offset
        for topic, partition, offset in connection.execute(_DELIVERIES["first_offsets"], bounds)
    }
    begins = []
    for topic, offsets, last in zip(topics, lows, ends, strict=True):
        begins.append(dict(offsets))
        for partition, low in offsets.items():
            recorded = first.get((topic.name, partition), low)
            is_known = topic.name not in replaced and (topic.name, None) not in first
            if is_known and low < recorded <= last[partition]:
                begins[-1][partition] = recorded
    return begins


def _newest(connection: psycopg.Connection[Any]) -> int:
    row = connection.execute(_LEDGER["scope"], {"since": None, "until": None}).fetchone()
    return 0 if row is None else row[1] or 0


def run(
    connection: psycopg.Connection[Any],
    settings: Settings,
    state: AuditState,
    folder: Path,
    keys_file: Path,
    consumed: str | None,
    phase: Phase,
) -> KafkaAudit:
    """Read, compare and explain. Continues a killed audit from its state in `folder`.

    `consumed`: a consumer's database or group, to compare with the topics and the outbox.
    """
    scope = Scope.from_json(state.scope)
    found = Spill(folder, "found", RECEIVED, state.buckets)
    expected = Spill(folder, "expected", EXPECTED, state.buckets)
    found.restore(state.found_sizes)
    expected.restore(state.expected_sizes)
    row = connection.execute(_LEDGER["input"], {"from_batch": scope.last_kept_from}).fetchone()
    input_ids, revision, bounds = row if row is not None else ([], None, [])
    if state.lows is None:
        state.inputs = state.inputs or sorted(input_ids)
        left = sum(
            end - state.next_offsets[topic][partition]
            for topic, ends in enumerate(state.ends)
            for partition, end in ends.items()
        )
        ReceivedReader(settings, state, folder, found).run(phase("reading the topics back", left))
        broker = Broker(settings.kafka)
        topics = broker.describe(state.topics)
        state.lows = broker.lows(topics)
        state.compacted = sorted(broker.compacted(topics).union(state.compacted))
        if state.compacted and scope.to_end:
            # A batch committed since step 3 may have superseded a record in a compacted topic before it was read.
            state.known_to = max(state.known_to, _newest(connection))
        states.save(folder, state)
    sessions = connection.execute(
        _LEDGER["totals"], {"from_batch": state.next_batch, "to_batch": state.known_to}
    ).fetchone()
    ExpectedReader(scope, state, folder, expected).run(
        connection, state.known_to, phase("reading the outbox", sessions[0] if sessions is not None else 0)
    )
    rule = unexpected_record_rule(scope, state.inputs, read_ends(connection), revision, bounds)
    with LostRows(folder) as lost:
        numbers = {name: number for number, name in enumerate(state.topics)}
        comparison = Comparison(
            rule=rule,
            on_lost=lost.add,
            compacted=frozenset(numbers[name] for name in state.compacted),
            shared=frozenset(
                numbers[name] for name in {*state.foreign, *read_topics(connection)} if name in numbers
            ),
        )
        _compare(comparison, expected, found, folder, phase)
        explainer = Explainer(connection, settings.kafka, state.topics)
        try:
            checks = [
                _topics_check(state),
                _readable_check(state),
                _offsets_check(state),
                *explainer.checks(comparison),
            ]
        finally:
            explainer.close()
        counted = {**state.counted, **comparison.counted}
        if consumed is not None:
            read = ReadBack(state, folder, expected, found, rule)
            consumers = check_consumed(consumed, read, Broker(settings.kafka), phase)
            checks += consumers.checks
            counted |= consumers.counted
        return KafkaAudit(checks, counted, mending_command(connection, lost, state.topics, keys_file))


def _compare(comparison: Comparison, expected: Spill, found: Spill, folder: Path, phase: Phase) -> None:
    advance = phase("comparing", expected.buckets + _ORDER_BUCKETS)
    order = Spill(folder, "order", VISIT, _ORDER_BUCKETS)
    order.restore([])
    compacted = Spill(folder, "compacted", EXPECTED, expected.buckets)
    compacted.restore([])
    for bucket in range(expected.buckets):
        visits, of_compacted = comparison.compare_bucket(
            map(ExpectedOutput._make, expected.read(bucket)), map(ReceivedOutput._make, found.read(bucket))
        )
        for visit in visits:
            order.append(visit.session_key[0] % _ORDER_BUCKETS, VISIT.pack(*visit))
        for output in of_compacted:
            compacted.append(int.from_bytes(output.record_key) % compacted.buckets, EXPECTED.pack(*output))
        advance(1)
    for bucket in range(compacted.buckets):
        comparison.compare_compacted(map(ExpectedOutput._make, compacted.read(bucket)))
    for bucket in range(_ORDER_BUCKETS):
        comparison.compare_order(map(Visit._make, order.read(bucket)))
        advance(1)


def _topics_check(state: AuditState) -> Check:
    check = Check("topics", "Are the output topics still the ones that were delivered to?")
    for name in state.missing:
        check.add(f"topic {name} does not exist any more")
    for name in state.replaced:
        check.add(f"topic {name} was deleted and created again: the outputs in the old one are gone")
    return check


def _readable_check(state: AuditState) -> Check:
    check = Check("readable", "Can the outputs of every delivered row be read?")
    check.count = state.counted.get("unreadable_rows", 0)
    return check


def _offsets_check(state: AuditState) -> Check:
    check = Check(
        "offsets", "Do the recorded offsets of the deliveries have the form that a publisher writes?"
    )
    for found in state.malformed:
        check.add(found)
    return check
