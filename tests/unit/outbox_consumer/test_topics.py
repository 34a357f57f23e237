"""What is told and not skipped: a topic that was made again, lost or deleted records; and where a consumer begins."""

from contextlib import closing
from itertools import count
from types import SimpleNamespace

import pytest

from outbox_consumer import partitions
from outbox_consumer.errors import SettingsError, TopicChangedError, TransactionEndedError
from outbox_consumer.partitions import FORCED, client_options
from outbox_consumer.store import Store
from tests.support.consumer.effects import OPTIONS, Database, apply, consume_all, member
from tests.support.consumer.group import Broker, Member, Record


def output(end: int) -> Record:
    """The one output of a session."""
    return Record(str(end).encode(), f"T/0/{end}/0")


def repaired(database: Database, error: TopicChangedError) -> None:
    """Run the statement that the error gives."""
    statement = str(error).partition(": UPDATE")[2]
    with closing(database.connect()) as connection, connection:
        connection.execute("UPDATE" + statement.replace("…", "'billing'"))


def test_a_topic_that_was_made_again_is_told_and_refilled_without_a_second_effect(
    broker: Broker, database: Database
) -> None:
    broker.append("orders", 0, output(0), output(1))
    consume_all(broker, database)
    broker.recreate("orders")
    # As long as before, so that no offset tells.
    broker.append("orders", 0, output(0), output(1), output(2))
    with pytest.raises(TopicChangedError, match="deleted and created again") as told:
        consume_all(broker, database)
    repaired(database, told.value)
    consume_all(broker, database)
    assert database.effects() == ["0", "1", "2"]


def test_a_topic_that_is_made_again_between_fetch_and_commit_is_told_before_anything_is_committed(
    broker: Broker, database: Database
) -> None:
    broker.append("orders", 0, output(0), output(1), output(2))

    def recreate() -> None:
        broker.recreate("orders")
        broker.append("orders", 0, *(output(n) for n in range(10, 15)))

    def run() -> None:
        with closing(database.connect()) as connection:
            for each in member(broker, connection):
                apply(connection, each)
                broker.members[0].after_fetch = recreate

    with pytest.raises(TopicChangedError):
        run()
    assert database.effects() == ["0"]


def test_lost_and_deleted_records_are_told(broker: Broker, database: Database) -> None:
    broker.append("orders", 0, output(0), output(1), output(2))
    consume_all(broker, database)
    topic = broker.topics["orders"]
    lost, topic.logs[0] = topic.logs[0], topic.logs[0][:1]
    with pytest.raises(TopicChangedError, match="ends at 1, but is consumed to 3") as told:
        consume_all(broker, database)
    topic.logs[0] = [*lost, output(3), output(4)]
    topic.low[0] = 5
    with pytest.raises(TopicChangedError, match="begins at 5, but is consumed to 3 only") as told:
        consume_all(broker, database)
    repaired(database, told.value)
    consume_all(broker, database)
    assert database.effects() == ["0", "1", "2", "4"]


def test_records_that_are_deleted_under_a_slow_consumer_are_told(broker: Broker, database: Database) -> None:
    broker.append("orders", 0, *(output(n) for n in range(9)))

    def run() -> None:
        with closing(database.connect()) as connection:
            for each in member(broker, connection):
                apply(connection, each)
                broker.topics["orders"].low[0] = 8

    with pytest.raises(TopicChangedError, match="begins at 8"):
        run()


def test_a_commit_marker_that_retention_deletes_is_no_lost_record(
    broker: Broker, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "_SETTLE_S", 0)
    broker.append("orders", 0, output(0))
    consume_all(broker, database, stop=lambda consumer: consumer.empty_polls > 1)
    assert database.positions()["orders", 0] == 2
    broker.topics["orders"].low[0] = 2
    broker.append("orders", 0, output(1))
    consume_all(broker, database)
    assert database.effects() == ["0", "1"]


def test_a_busy_partition_keeps_no_quiet_one_below_its_commit_marker(
    broker: Broker, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, numbers = count(step=4), iter(range(1, 20))
    monkeypatch.setattr(partitions, "time", SimpleNamespace(monotonic=lambda: next(clock)))

    def stop(consumer: Member) -> bool:
        """Another output in the other partition with each poll."""
        number = next(numbers)
        broker.append("orders", 1, output(number))
        return number > 15

    broker.append("orders", 0, output(0))
    consume_all(broker, database, stop=stop)
    assert database.positions()["orders", 0] == 2


def test_latest_counts_once_and_for_all_partitions_of_a_new_topic(database: Database) -> None:
    broker = Broker(orders=2)
    broker.append("orders", 0, output(0))
    broker.append("orders", 1, output(1))
    with closing(database.connect()) as connection:
        first = member(broker, connection, start="latest")
        broker.members[0].wanted = {("orders", 0)}
        assert list(first) == []
    broker.members[0].closed = True
    # The partition that this member did not get has its start, too; a partition that is added has none of its records skipped.
    broker.append("orders", 1, output(2))
    broker.topics["orders"].logs.append([output(3)])
    broker.topics["orders"].low.append(0)
    consume_all(broker, database, start="latest")
    assert sorted(database.effects()) == ["2", "3"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("isolation.level", "read_uncommitted"),
        ("enable.auto.commit", True),
        ("enable.auto.offset.store", "true"),
        ("auto.offset.reset", "earliest"),
        ("partition.assignment.strategy", "range"),
        ("default.topic.config", {}),
        ("group.id", ""),
    ],
)
def test_options_that_break_exactly_once_are_refused(name: str, value: object) -> None:
    with pytest.raises(SettingsError, match=name):
        client_options({**OPTIONS, name: value})


def test_the_options_are_forced_and_may_be_repeated() -> None:
    assert client_options({**OPTIONS, "isolation.level": "READ_COMMITTED"}).items() >= FORCED.items()
    assert "partition.assignment.strategy" not in client_options({**OPTIONS, "group.protocol": "consumer"})


def test_a_body_that_commits_ends_the_loop(broker: Broker, database: Database) -> None:
    broker.append("orders", 0, output(0))

    def run() -> None:
        with closing(database.connect()) as connection:
            for each in member(broker, connection):
                apply(connection, each)
                connection.commit()

    with pytest.raises(TransactionEndedError):
        run()
    assert database.positions()["orders", 0] == 0


def test_a_connection_that_commits_by_itself_is_refused() -> None:
    class Connection:
        autocommit = True

        def cursor(self) -> object:
            return None

        def commit(self) -> None: ...

        def rollback(self) -> None: ...

    Connection.__module__ = "sqlite3"
    with pytest.raises(SettingsError, match="autocommit"):
        Store(Connection(), "billing")


def test_rows_as_dictionaries_are_no_matter(broker: Broker, database: Database) -> None:
    broker.append("orders", 0, output(0), output(1))
    with closing(database.connect()) as connection:
        connection.row_factory = lambda cursor, row: {
            column[0]: value for column, value in zip(cursor.description, row, strict=True)
        }
        for each in member(broker, connection):
            apply(connection, each)
    assert database.effects() == ["0", "1"]
