"""Kafka may be away or die: nothing is lost or repeated, and the lanes continue by themselves."""

from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from contract.progress import Progress
from db.migrate import upgrade
from devstack.kafka import Kafka, KafkaServer
from devstack.postgres import Postgres
from devstack.topics import create_topics
from publisher.kafka.clients import committed_reader
from publisher.kafka.progress_reader import newest_of, records_backwards
from publisher.kafka.topics import Topics
from service.kafka.client import admin_client
from service.settings import KafkaSettings
from tests.support.lanes import RECORD
from tests.support.outbox.batches import Outbox, simple
from tests.support.outbox.deliveries import assert_exactly_once, drained, status_of
from tests.support.processes.publishers import RelayThread, settings_for
from tests.support.queries import query
from tests.support.waiting import wait_until
from tests.support.watching import Watcher


@pytest.mark.guarantee(30)
def test_a_broker_that_dies_in_the_middle_and_comes_back_costs_nothing(
    database: str, own_kafka: Kafka, topic_prefix: str
) -> None:
    topic = f"{topic_prefix}events"
    create_topics(own_kafka.bootstrap_servers, {topic: (3, {})})
    outbox = Outbox(database, topic)
    settings = settings_for(database, own_kafka.bootstrap_servers, transaction_sessions=5)
    with Watcher(own_kafka.bootstrap_servers, topic, tolerant=True) as watcher:
        with RelayThread(settings):
            for batch in range(1, 20):
                outbox.batch(simple(batch, keys=40))
            wait_until(lambda: len(watcher.seen) > 50, "the first events")
            own_kafka.kill()
            outbox.batch(simple(20, keys=40))
            own_kafka.start()
            wait_until(lambda: drained(database), "the rest")
        assert_exactly_once(outbox, watcher)


@pytest.mark.guarantee(36)
def test_a_postgres_that_restarts_under_a_running_publisher_costs_nothing(
    tmp_path: Path, kafka: KafkaServer, topic: str, watcher: Watcher
) -> None:
    server = Postgres(tmp_path / "postgres", fast=True)
    server.start()
    try:
        dsn = server.create_database("outbox")
        upgrade(dsn)
        outbox = Outbox(dsn, topic)
        with RelayThread(settings_for(dsn, kafka.bootstrap_servers, transaction_sessions=5)) as relay:
            for batch in range(1, 10):
                outbox.batch(simple(batch, keys=40))
            wait_until(lambda: len(watcher.seen) > 50, "the first events")
            server.stop()
            server.start()
            # Another epoch, so that the process looks for the next one after the restart, too.
            outbox.add_epoch(2, 10, 3)
            for batch in range(10, 13):
                outbox.batch(simple(batch, keys=40))
            wait_until(lambda: relay.ended() or (epochs(dsn) == 2 and drained(dsn)), "the rest")
        assert relay.error is None
        assert_exactly_once(outbox, watcher)
    finally:
        server.destroy()


def test_a_postgres_that_restarts_while_the_publisher_waits_for_the_job_costs_nothing(
    tmp_path: Path, kafka: KafkaServer, topic: str, watcher: Watcher
) -> None:
    server = Postgres(tmp_path / "postgres", fast=True)
    server.start()
    try:
        dsn = server.create_database("outbox")
        upgrade(dsn)
        with RelayThread(settings_for(dsn, kafka.bootstrap_servers)) as relay:
            wait_until(lambda: connected(dsn), "the publisher's connection")
            server.stop()
            server.start()
            wait_until(lambda: relay.ended() or connected(dsn), "the publisher's next connection")
            outbox = Outbox(dsn, topic)
            outbox.batch(simple(1, keys=4))
            wait_until(lambda: relay.ended() or drained(dsn), "the delivery")
        assert relay.error is None
        assert_exactly_once(outbox, watcher)
    finally:
        server.destroy()


def connected(dsn: str) -> bool:
    """Whether a publisher listens for the job: it waits for lanes then, or will at once."""
    return query(dsn, "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'publisher%%'") == [
        (3,)
    ]


def epochs(dsn: str) -> int:
    """The newest epoch that status shows, 0 between two."""
    return max((lane.epoch for lane in status_of(dsn).lanes), default=0)


def test_a_stop_while_kafka_does_not_answer_at_the_start_is_no_failure(database: str) -> None:
    with RelayThread(settings_for(database, "127.0.0.1:1")) as relay:
        wait_until(
            lambda: (
                query(database, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'publisher'")
                != [(0,)]
            ),
            "the start",
        )
    assert relay.error is None


@pytest.mark.guarantee(60)
def test_the_end_is_not_believed_while_another_transaction_hides_it(
    kafka: KafkaServer, topic_prefix: str
) -> None:
    name = f"{topic_prefix}progress"
    create_topics(kafka.bootstrap_servers, {name: (1, {"cleanup.policy": "compact"})})
    settings = KafkaSettings(bootstrap_servers=kafka.bootstrap_servers)
    topics = Topics(admin_client(settings), timeout_s=30, create=False)

    def producer(name: str) -> Producer:
        made = Producer({**settings.client(), "log_level": 0, "transactional.id": f"{topic_prefix}{name}"})
        made.init_transactions(30)
        made.begin_transaction()
        return made

    def read() -> Progress | None:
        high = topics.high_watermark(name, 0)
        with committed_reader(settings, timeout_s=2.0) as reader:
            return newest_of(records_backwards(reader, name, 0, high), RECORD.epoch, 0).record

    assert read() is None
    other = producer("other")
    other.produce(name, b"in the way", b"other", 0)
    other.flush()
    own = producer("own")
    own.produce(name, RECORD.encode(), RECORD.key(), 0)
    own.commit_transaction()
    # The record is committed, but not readable yet: "there is none" would repeat everything.
    with pytest.raises(KafkaException, match="another transaction is open"):
        read()
    other.abort_transaction()
    assert read() == RECORD
