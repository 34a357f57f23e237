"""The consumer kit with a real Postgres and a real Kafka, in this process."""

import json
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from secrets import token_hex
from typing import Any

import psycopg
import pytest
from confluent_kafka.admin import AdminClient
from psycopg.rows import dict_row

from contract.positions import OutboxId
from devstack.kafka import KafkaServer
from devstack.topics import create_topics
from outbox_consumer import Output, TopicChangedError, TransactionEndedError, consume, retry
from outbox_consumer.loop import Loop
from outbox_consumer.reading import ConsumerTables
from outbox_consumer.store import Store, dialect_queries
from tests.support.consumer.group import Record, Send
from tests.support.queries import query
from tests.support.waiting import DEADLINE_S, wait_until

INSERT = (
    "INSERT INTO effect (outbox_id, revision, partition, record_offset, value) VALUES (%s, %s, %s, %s, %s)"
)


def output(value: str, end: int, revision: int = 0, replay: str | None = None) -> Record:
    """The first output of the session that ends at `end`."""
    return Record(value.encode(), f"AAAAAAAAAAAAAAAAAAAAAA/0/{end}/0", revision, replay)


def apply(connection: psycopg.Connection[Any], each: Output) -> None:
    """A handler."""
    connection.execute(INSERT, (str(each.outbox_id), each.revision, each.partition, each.offset, each.value))


def effects(dsn: str) -> list[str]:
    """What handlers wrote, in the order of commits."""
    return [value.decode() for (value,) in query(dsn, "SELECT value FROM effect ORDER BY number")]


def until(dsn: str, count: int) -> Callable[[], bool]:
    """A `stop` that waits for so many effects."""
    deadline = time.monotonic() + DEADLINE_S

    def stop() -> bool:
        assert time.monotonic() < deadline, effects(dsn)
        return len(effects(dsn)) >= count

    return stop


def run(dsn: str, options: dict[str, Any], topic: str, count: int, **given: Any) -> list[Output]:
    """Consume until there are so many effects; what was handed out."""
    seen = []
    with psycopg.connect(dsn, row_factory=dict_row) as connection:
        for each in consume(connection, options, [topic], stop=until(dsn, count), **given):
            apply(connection, each)
            seen.append(each)
    return seen


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_committed_outputs_come_once_over_restarts_and_copies(
    own_database: str, topic: str, options: dict[str, Any], send: Send, protocol: str
) -> None:
    options["group.protocol"] = protocol
    send(0, [output("a", 1), output("b", 2)])
    send(0, [output("aborted", 3)], abort=True)
    send(1, [output("c", 4), Record(b"foreign")])
    run(own_database, options, topic, 4)
    send(0, [output("a again", 1), output("b replayed", 2, replay="r"), output("d", 5)])
    send(
        1, [output("a replayed", 1, replay="r"), output("c1", 4, revision=1), output("c0", 4), output("e", 6)]
    )
    seen = run(own_database, options, topic, 7)
    assert sorted(effects(own_database)) == ["a", "b", "c", "c1", "d", "e", "foreign"]
    assert [(each.value, each.replaces) for each in seen if each.revision] == [(b"c1", 0)]


def test_a_block_that_raises_is_set_aside_and_handed_out_again(
    own_database: str, topic: str, options: dict[str, Any], send: Send
) -> None:
    send(0, [output("a", 1), output("bad", 2), output("c", 3)])
    with psycopg.connect(own_database) as connection:
        for each in consume(connection, options, [topic], attempts=2, stop=until(own_database, 2)):
            with each:
                apply(connection, each)
                if each.value == b"bad":
                    # The transaction is broken, too.
                    connection.execute("SELECT 1 / 0")
        assert effects(own_database) == ["a", "c"]
        rows = query(own_database, "SELECT value, reason, headers FROM outbox_consumer_letter")
        assert [(value, reason) for value, reason, _ in rows] == [
            (b"bad", "DivisionByZero: division by zero")
        ]
        assert [name for name, _ in json.loads(rows[0][2])] == ["outbox-id"]
        for each in retry(connection, options["group.id"]):
            with each:
                apply(connection, each)
    assert effects(own_database) == ["a", "c", "bad"]
    assert query(own_database, "SELECT count(*) FROM outbox_consumer_letter") == [(0,)]


def test_an_id_that_the_tables_cannot_hold_stops_no_consumer(
    own_database: str, topic: str, options: dict[str, Any], send: Send
) -> None:
    """Others who may write to the topic choose it."""
    long = token_hex(2_000)  # nothing to compress
    send(0, [Record(b"odd", "T/0/1/2147483648"), Record(b"long", f"{long}/0/1/0"), output("a", 1)])
    run(own_database, options, topic, 1)
    assert effects(own_database) == ["a"]
    letters = query(own_database, "SELECT value FROM outbox_consumer_letter ORDER BY 1")
    assert letters == [(b"long",), (b"odd",)]


def test_what_is_forgotten_is_set_aside(
    own_database: str, topic: str, options: dict[str, Any], send: Send
) -> None:
    send(0, [output("a", 1), output("b", 2)])
    run(own_database, options, topic, 2)
    with psycopg.connect(own_database) as connection:
        connection.execute(
            "UPDATE outbox_consumer_seen SET seen_at = now() - interval '31 days' WHERE end_offset = 1"
        )
    send(0, [output("a", 1, replay="r"), output("b", 2, replay="r"), output("old", 0)])
    run(own_database, options, topic, 3, remember=timedelta(days=30))
    assert effects(own_database) == ["a", "b", "old"]
    assert query(own_database, "SELECT value, replay FROM outbox_consumer_letter") == [(b"a", "r")]


@pytest.mark.parametrize("how", ["commit", "swallowed"])
def test_a_body_that_ends_or_breaks_the_transaction_ends_the_loop(
    own_database: str, topic: str, options: dict[str, Any], send: Send, how: str
) -> None:
    send(0, [output("a", 1)])

    def loop() -> None:
        with psycopg.connect(own_database) as connection:
            for each in consume(connection, options, [topic]):
                apply(connection, each)
                if how == "commit":
                    connection.commit()
                with suppress(psycopg.errors.DivisionByZero):
                    connection.execute("SELECT 1 / 0")

    with pytest.raises(TransactionEndedError):
        loop()
    assert query(own_database, "SELECT max(next_offset) FROM outbox_consumer_position") == [(0,)]


def test_a_topic_that_was_made_again_is_told_and_its_refill_has_no_second_effect(
    own_database: str, topic: str, options: dict[str, Any], send: Send, kafka: KafkaServer
) -> None:
    send(0, [output("a", 1), output("b", 2)])
    run(own_database, options, topic, 2)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.delete_topics([topic], operation_timeout=30)[topic].result()
    wait_until(lambda: topic not in admin.list_topics(timeout=30).topics, "the topic's end")
    create_topics(kafka.bootstrap_servers, {topic: (2, {})})
    send(0, [output("a", 1, replay="r"), output("b", 2, replay="r"), output("c", 3)])
    with pytest.raises(TopicChangedError, match="deleted and created again") as told:
        run(own_database, options, topic, 3)
    statement = "UPDATE" + str(told.value).partition(": UPDATE")[2].replace("…", f"'{options['group.id']}'")
    with psycopg.connect(own_database) as connection:
        connection.execute(statement.encode())
    run(own_database, options, topic, 3)
    assert effects(own_database) == ["a", "b", "c"]


def test_latest_is_resolved_once_and_the_groups_offsets_decide_nothing(
    own_database: str, topic: str, options: dict[str, Any], send: Send
) -> None:
    send(0, [output("before", 1)])
    with psycopg.connect(own_database) as connection:
        asked = iter(range(10**9))
        list(
            consume(
                connection,
                options,
                [topic],
                start="latest",
                stop=lambda: _has_position(own_database, next(asked)),
            )
        )
    send(0, [output("after", 2)])
    send(1, [output("also after", 3)])
    run(own_database, options, topic, 2, start="latest")
    assert sorted(effects(own_database)) == ["after", "also after"]
    # Another group of Kafka's, the same consumer of the database's: the position decides.
    with psycopg.connect(own_database) as connection:
        connection.execute("UPDATE outbox_consumer_position SET consumer = 'renamed'")
        connection.execute("UPDATE outbox_consumer_seen SET consumer = 'renamed'")
    send(0, [output("last", 4)])
    run(own_database, {**options, "group.id": "renamed"}, topic, 3)
    assert sorted(effects(own_database)) == ["after", "also after", "last"]


def _has_position(dsn: str, asked: int) -> bool:
    """Whether partitions were assigned. The first question comes before the tables are there."""
    return asked > 0 and query(dsn, "SELECT count(*) FROM outbox_consumer_position") == [(2,)]


def test_a_deleted_commit_marker_is_no_lost_record(
    own_database: str, topic: str, options: dict[str, Any], send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outbox_consumer.partitions._SETTLE_S", 0.0)
    send(0, [output("a", 1)])

    def settled() -> bool:
        # The record, and its marker.
        return until(own_database, 1)() and (0, 2) in query(
            own_database, "SELECT partition, next_offset FROM outbox_consumer_position"
        )

    with psycopg.connect(own_database) as connection:
        asked = iter(range(10**9))
        for each in consume(connection, options, [topic], stop=lambda: next(asked) > 0 and settled()):
            apply(connection, each)
    assert effects(own_database) == ["a"]


def test_a_tail_of_a_run_that_another_process_has_consumed_is_dropped(
    own_database: str, topic: str, options: dict[str, Any], send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its row of the position is locked when this process begins; what it reads after the lock is the newest."""
    send(0, [Record(b"1"), Record(b"2")])
    begin = Loop._transaction

    def overtaken(self: Loop, given: list[Output]) -> Any:
        with psycopg.connect(own_database) as other:
            other.execute(
                "UPDATE outbox_consumer_position SET next_offset = 1 WHERE partition = 0 AND next_offset = 0"
            )
        return begin(self, given)

    monkeypatch.setattr(Loop, "_transaction", overtaken)
    run(own_database, options, topic, 1)
    assert effects(own_database) == ["2"]


def test_the_rows_of_an_output_are_found_by_the_index(own_database: str) -> None:
    """Whatever a consumer remembers besides; its name is the first column, and nobody gives it."""
    with psycopg.connect(own_database) as connection:
        Store(connection, "billing").prepare()
        connection.execute(
            'INSERT INTO outbox_consumer_seen (consumer, source, end_offset, output, revision, topic, partition, "offset", retried)'
            " SELECT consumer, 'T/0', n, 0, 0, 'out', 0, n, false"
            " FROM unnest('{billing,shipping}'::text[]) consumer, generate_series(1, 20000) n"
        )
        connection.commit()
        connection.execute("ANALYZE outbox_consumer_seen")
        found = ConsumerTables(connection, "postgres").of_outputs(
            [OutboxId("T", 0, 7, 0), OutboxId("T", 0, 0, 0)]
        )
        assert [each.consumer for each in found["T/0/7/0"]] == ["billing", "shipping"]
        assert found["T/0/0/0"] == []
        asked = json.dumps([{"outbox_id": "T/0/7/0", "source": "T/0", "end_offset": 7, "output": 0}])
        plan = connection.execute(
            "EXPLAIN " + dialect_queries("postgres")["consumed_as"], {"outputs": asked}
        ).fetchall()
        assert any("outbox_consumer_seen_key" in line for (line,) in plan), plan
