"""What must hold after every fault, asserted against Kafka, Postgres and the reference."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.support.pipeline.expectation import Expectation, Letter, Output
from tests.support.queries import query
from tests.support.reading import end_offsets
from tests.support.waiting import wait_until
from tests.support.watching import DeliveredEvent

OBSERVER = "acceptance test"
"""Name of the tests' own connections."""

_TRACEBACK_ENDS_WITH = "RefusedSessionError: session "


def assert_delivered(expected: Expectation, seen: Sequence[DeliveredEvent]) -> None:
    """Fail unless the consumer saw each output once, with its bytes, in its session key's order. `seen`: as it came."""
    got = [Output(e.topic, e.key, e.value, e.own_headers, e.outbox_id, e.revision) for e in seen]
    assert_same(Counter(expected.outputs), Counter(got), "events in Kafka")
    ids = [(o.outbox_id, o.revision) for o in got]
    assert_same(Counter(ids), Counter({*ids}), "outbox-ids")
    wanted_order, order = _by_key(expected.outputs), _by_key(got)
    wrong = [place for place, ids in wanted_order.items() if order[place] != ids]
    assert not wrong, (
        f"{len(wrong)} keys out of order, the first {wrong[0]}: {order[wrong[0]][:50]} instead of {wanted_order[wrong[0]][:50]}"
    )


def assert_outbox(dsn: str, expected: Expectation, after_batch: int = 0) -> None:
    """Fail unless the batches after `after_batch` hold each output and each dead letter once, and nothing else."""
    assert_same(
        Counter((o.topic, o.key, o.value, o.outbox_id, o.revision) for o in expected.outputs),
        Counter(
            query(
                dsn,
                "SELECT topic, key, value, outbox_id, revision FROM outbox.event WHERE batch_id > %s",
                after_batch,
            )
        ),
        "events in the outbox",
    )
    assert_same(Counter(expected.letters), Counter(letters(dsn, after_batch)), "dead letters")
    unexplained = query(
        dsn,
        "SELECT first_offset, detail FROM outbox.dead_letter WHERE reason = 'transform_failed'"
        " AND (position('Traceback' in detail) = 0 OR position(%s || session_key in detail) = 0)",
        _TRACEBACK_ENDS_WITH,
    )
    assert not unexplained, f"failed transforms without their traceback: {unexplained[:3]}"
    counted = query(
        dsn,
        "SELECT sum(sessions), sum(output_events), sum(dead_letters), sum(input_events), sum(duplicate_events),"
        " (SELECT max(revision) FROM outbox.generation) FROM outbox.batch WHERE batch_id > %s",
        after_batch,
    )
    *written, read, duplicates, revision = map(int, counted[0])
    assert written == [expected.sessions, len(expected.outputs), len(expected.letters)]
    if revision == 0:  # what is read again to find open sessions does not count
        assert (read, duplicates) == (expected.records, expected.duplicates)
    else:
        assert read >= expected.records
        assert duplicates >= expected.duplicates


def assert_ledger_agrees(dsn: str, after_batch: int = 0) -> None:
    """Fail on a half batch: rows without their ledger row, counts that differ, a gap, a repetition.

    `after_batch`: retention may have dropped the rows up to there.
    """
    half = query(
        dsn,
        """
        SELECT batch_id, b.sessions, o.sessions, b.output_events, o.outputs, b.dead_letters, d.letters
        FROM outbox.batch b
        FULL JOIN (SELECT batch_id, sum(cardinality(session_ends)) AS sessions, sum(cardinality(topics)) AS outputs
                   FROM outbox.session_output GROUP BY batch_id) o USING (batch_id)
        FULL JOIN (SELECT batch_id, count(*) AS letters FROM outbox.dead_letter GROUP BY batch_id) d USING (batch_id)
        WHERE batch_id > %s
          AND (b.batch_id IS NULL OR b.sessions <> coalesce(o.sessions, 0) OR b.output_events <> coalesce(o.outputs, 0)
               OR b.dead_letters <> coalesce(d.letters, 0))
        """,
        after_batch,
    )
    assert not half, f"batches whose ledger row and rows differ: {half}"
    gaps = query(
        dsn,
        """
        SELECT * FROM (
            SELECT batch_id, batch_id - lag(batch_id, 1, 0::bigint) OVER w AS step,
                   spark_batch - lag(spark_batch, 1, -1::bigint) OVER r AS spark_step,
                   start_offsets @> lag(end_offsets, 1, (SELECT r.start_offsets FROM outbox.generation r WHERE r.generation = b.generation))
                       OVER g AS continues
            FROM outbox.batch b WHERE part = 0
            WINDOW w AS (ORDER BY batch_id), g AS (PARTITION BY generation, kind ORDER BY batch_id),
                r AS (PARTITION BY run_id, kind ORDER BY batch_id)) b
        WHERE step <> 1 OR spark_step < 1 OR NOT continues
        """,
    )
    assert not gaps, f"batches that do not follow each other: {gaps}"
    twice = query(
        dsn,
        """
        SELECT s.topic_id, s.partition, s.ends, o.revision, array_agg(o.batch_id)
        FROM outbox.session_output o,
             UNNEST(o.session_topic_ids, o.session_partitions, o.session_ends) s(topic_id, partition, ends)
        GROUP BY 1, 2, 3, 4 HAVING count(*) > 1
        """,
    )
    assert not twice, f"sessions that are in the outbox twice: {twice}"
    turns = query(
        dsn,
        "SELECT count(DISTINCT run_id), count(*) FILTER (WHERE begins) FROM"
        " (SELECT run_id, run_id IS DISTINCT FROM lag(run_id) OVER (ORDER BY batch_id) AS begins"
        " FROM outbox.batch WHERE kind = 'stream') b",
    )
    assert turns[0][0] == turns[0][1], (
        f"{turns[0][0]} runs wrote in {turns[0][1]} turns: one wrote after it was fenced"
    )


def assert_deliveries_chain(dsn: str) -> None:
    """Fail unless each lane's transactions follow each other from its epoch's first batch on, and all carry what the ledger counts."""
    broken = query(
        dsn,
        """
        SELECT * FROM (
            SELECT epoch, lane, seq, seq - lag(seq, 1, 0::bigint) OVER w AS step, after_batch, after_key,
                   lag(to_batch, 1, e.from_batch - 1) OVER w AS batch_before, lag(to_key) OVER w AS key_before
            FROM outbox.delivery JOIN outbox.lane_epoch e USING (epoch) WINDOW w AS (PARTITION BY epoch, lane ORDER BY seq)) d
        WHERE step <> 1 OR (after_batch, after_key) IS DISTINCT FROM (batch_before, key_before)
        """,
    )
    assert not broken, f"transactions that do not follow each other: {broken}"
    ((delivered, counted),) = query(
        dsn,
        "SELECT (SELECT ARRAY[sum(sessions), sum(events)] FROM outbox.delivery),"
        " (SELECT ARRAY[sum(sessions), sum(output_events)] FROM outbox.batch)",
    )
    assert delivered == counted, f"sessions and events: {delivered} in transactions, {counted} in the ledger"
    assert (
        query(dsn, "SELECT epoch, lane, stopped_reason FROM outbox.lane WHERE stopped_reason IS NOT NULL")
        == []
    )
    assert query(dsn, "SELECT * FROM outbox.parked") == []


def assert_delivery_agrees(dsn: str) -> None:
    """Fail unless the publisher's records say what the outbox says: each lane's chain of transactions, its sums, its end."""
    assert_deliveries_chain(dsn)
    differing = query(
        dsn,
        """
        SELECT l.lane, l.cursor_batch, l.cursor_key, l.stopped_reason, l.seq, d.seq,
               l.sessions, d.sessions, o.sessions, l.events, d.events, o.events
        FROM outbox.lane l
        LEFT JOIN (SELECT lane, max(seq) AS seq, sum(sessions) AS sessions, sum(events) AS events
                   FROM outbox.delivery GROUP BY lane) d USING (lane)
        LEFT JOIN (SELECT lane, sum(cardinality(session_ends)) AS sessions, sum(cardinality(topics)) AS events
                   FROM outbox.session_output GROUP BY lane) o USING (lane)
        WHERE l.cursor_batch <> (SELECT max(batch_id) FROM outbox.batch) OR l.cursor_key IS NOT NULL
           OR l.stopped_reason IS NOT NULL OR l.seq <> coalesce(d.seq, 0)
           OR (l.sessions, l.events) IS DISTINCT FROM (coalesce(d.sessions, 0), coalesce(d.events, 0))
           OR (l.sessions, l.events) IS DISTINCT FROM (coalesce(o.sessions, 0), coalesce(o.events, 0))
        """,
    )
    assert not differing, f"lanes that differ from what was written: {differing}"
    undelivered = query(
        dsn, "SELECT outbox_id, delivery_state FROM outbox.event WHERE delivery_state <> 'delivered'"
    )
    assert not undelivered, f"{len(undelivered)} events not delivered, such as {undelivered[:3]}"


def assert_no_open_transaction(bootstrap: str, topics: Iterable[str]) -> None:
    """Fail when a read_committed consumer cannot get to the end of a topic."""
    names = list(topics)
    committed, all_records = (end_offsets(bootstrap, names, committed=each) for each in (True, False))
    assert committed == all_records, f"open transactions: {committed} of {all_records} can be read"


def assert_nothing_held(dsn: str) -> None:
    """Fail unless both services gave back what they held: ownership, leases, connections, locks."""
    assert query(dsn, "SELECT run_id, heartbeat_at FROM outbox.writer") == [(None, None)]
    assert query(dsn, "SELECT lane, lease_holder FROM outbox.lane WHERE lease_holder IS NOT NULL") == []
    # A backend ends a moment after its client.
    wait_until(
        lambda: not _others(dsn), lambda: f"connections that nobody uses: {_others(dsn)}", timeout_s=30
    )
    prepared = query(dsn, "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()")
    assert prepared == []


def _others(dsn: str) -> list[Any]:
    return query(
        dsn,
        "SELECT application_name, state, query FROM pg_stat_activity"
        " WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
        " AND application_name <> %s",
        OBSERVER,
    )


def letters(dsn: str, after_batch: int = 0) -> list[Letter]:
    """The outbox's dead letters of the batches after `after_batch`."""
    rows = query(
        dsn,
        "SELECT reason, partition, first_offset, last_offset, closing_offset, session_key, event_count,"
        " event_offsets, event_times_ms, event_values, revision FROM outbox.dead_letter WHERE batch_id > %s",
        after_batch,
    )
    return [Letter._make((*row[:7], *map(tuple, row[7:10]), row[10])) for row in rows]


def assert_same(wanted: Counter[Any], got: Counter[Any], what: str) -> None:
    """Fail with examples of what is missing and of what is too much."""
    missing, surplus = wanted - got, got - wanted
    # Not by `assert`: pytest would take minutes to compare a hundred thousand events in its explanation.
    if missing or surplus:
        raise AssertionError(
            f"{what}: {wanted.total()} wanted, {got.total()} found; {missing.total()} missing, such as {list(missing)[:2]}; "
            f"{surplus.total()} too many, such as {list(surplus)[:2]}"
        )


def _by_key(outputs: Iterable[Output]) -> Mapping[tuple[str, bytes, int, str], list[str]]:
    """The order that is promised: of a key within its input partition. A reissue has its own, beside that of what was sent before."""
    found: dict[tuple[str, bytes, int, str], list[str]] = defaultdict(list)
    for output in outputs:
        source = output.outbox_id.rsplit("/", 2)[
            0
        ]  # a key that moved, because a partition was added, is another key there
        found[output.topic, output.key, output.revision, source].append(output.outbox_id)
    return found
