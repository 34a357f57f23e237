"""What was set back, rebuilt or swapped is found, at the start and while the publisher runs, also with empty batches at the cursor."""

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Producer

from devstack.databases import PostgresServer
from devstack.kafka import Kafka, KafkaServer
from devstack.topics import create_topics
from publisher.kafka.clients import committed_reader
from publisher.kafka.progress_reader import StoredProgress, records_backwards
from publisher.kafka.topics import Topics
from service.kafka.client import admin_client
from service.settings import KafkaSettings, Settings
from tests.support.outbox.batches import Outbox, simple
from tests.support.outbox.deliveries import assert_exactly_once, deliver, drained
from tests.support.outbox.restoring import (
    Dump,
    assert_seen,
    delete_topic,
    progress_topic,
    recreate_topic,
    resume,
    resume_fails_at,
    stops_with,
    total,
    wait_for_stop,
)
from tests.support.processes.publishers import RelayThread, settings_for
from tests.support.queries import query
from tests.support.waiting import wait_until
from tests.support.watching import Watcher

EVENTS = 12  # of simple(n, keys=4)

pytestmark = pytest.mark.faults


@pytest.fixture(params=["rows at the cursor", "empty batches at the cursor"])
def before_it_happens(request: pytest.FixtureRequest, outbox: Outbox) -> Callable[[], None]:
    """Commits what the lanes' cursors stand on when it happens."""

    def commit() -> None:
        outbox.batch(simple(1, keys=4))
        if request.param.startswith("empty"):
            outbox.batch({})
            outbox.batch({})

    return commit


@pytest.fixture(params=["at the start", "while it runs"])
def happens(request: pytest.FixtureRequest, outbox: Outbox, settings: Settings) -> Callable[..., None]:
    """Lets something happen to an outbox that has delivered all it has, and expects the stop with these words."""

    def stops_after(damage: Callable[[], None], *words: str) -> None:
        if request.param == "at the start":
            deliver(settings)
            damage()
            outbox.batch(simple(50, keys=4))
            stops_with(outbox, settings, *words)
            return
        with RelayThread(settings) as relay:
            wait_until(lambda: drained(outbox.dsn), "the delivery")
            damage()
            outbox.batch(simple(50, keys=4))
            wait_for_stop(outbox, relay, *words)

    return stops_after


@pytest.mark.guarantee(85)
def test_an_older_database_is_found(
    outbox: Outbox,
    settings: Settings,
    postgres: PostgresServer,
    watcher: Watcher,
    before_it_happens: Callable[[], None],
    happens: Callable[..., None],
) -> None:
    before_it_happens()
    deliver(settings)
    dump = Dump(postgres, outbox.dsn)
    before_it_happens()
    before_it_happens()
    happens(dump.restore, "database_restored", "publisher resume --from kafka")
    dump.drop()
    known = len(watcher.seen)
    assert known == 3 * EVENTS
    report = resume(settings, "--from", "kafka", "--yes")
    assert total(report, "unknown") == 2 * EVENTS
    assert total(report, "again") == total(report, "skipped") == 0
    deliver(settings)
    # What the job did not make again stays as it was; the one batch of after the restore is there once.
    assert_seen(watcher, outbox.written)


@pytest.mark.guarantee(85)
def test_a_resume_after_a_restore_that_dies_and_is_given_again_leaves_no_move_unrecorded(
    outbox: Outbox, settings: Settings, postgres: PostgresServer, watcher: Watcher, tmp_path: Path
) -> None:
    outbox.batch(simple(1, keys=4))
    deliver(settings)
    dump = Dump(postgres, outbox.dsn)
    for batch in (2, 3):
        outbox.batch(simple(batch, keys=4))
        deliver(settings)
    dump.restore()
    dump.drop()
    resume_fails_at("transaction.after_commit", settings, tmp_path, "--from", "kafka", "--lane", "0", "--yes")
    # Numbered beyond the transactions that the restored database has lost.
    resume(settings, "--from", "kafka", "--yes")
    outbox.batch(simple(50, keys=4))
    deliver(settings)
    assert query(
        outbox.dsn,
        "SELECT lane, count(*) FROM outbox.delivery WHERE kind = 'resume' GROUP BY lane ORDER BY lane",
    ) == [(0, 2), (1, 1)]
    assert_seen(watcher, outbox.written)


@pytest.mark.guarantee(85)
def test_a_lost_progress_topic_is_found(
    outbox: Outbox,
    settings: Settings,
    kafka: KafkaServer,
    watcher: Watcher,
    before_it_happens: Callable[[], None],
    happens: Callable[..., None],
) -> None:
    before_it_happens()

    def lose() -> None:
        delete_topic(kafka.bootstrap_servers, progress_topic(outbox.dsn))

    happens(lose, "kafka_lost", "publisher resume --from mirror")
    report = resume(settings, "--from", "mirror", "--yes")
    assert total(report, "trusted") == EVENTS
    deliver(settings)
    assert_exactly_once(outbox, watcher)


@pytest.mark.guarantee(85, 163)
@pytest.mark.parametrize("way", ["kafka", "mirror"])
def test_an_older_kafka_is_found(
    outbox: Outbox,
    settings: Settings,
    kafka: KafkaServer,
    watcher: Watcher,
    before_it_happens: Callable[[], None],
    way: str,
) -> None:
    before_it_happens()
    deliver(settings)
    name = progress_topic(outbox.dsn)
    older = progress_records(kafka.bootstrap_servers, name, 2)
    outbox.batch(simple(2, keys=4))
    deliver(settings)
    set_back_progress(kafka.bootstrap_servers, name, older)
    outbox.batch(simple(3, keys=4))
    stops_with(outbox, settings, "kafka_lost", "publisher resume --from kafka", "--from mirror")
    report = resume(settings, "--from", way, "--yes")
    lost = outbox.written[EVENTS : 2 * EVENTS]
    assert total(report, "again") == (EVENTS if way == "kafka" else 0)
    assert total(report, "trusted") == (EVENTS if way == "mirror" else 0)
    deliver(settings)
    assert_seen(watcher, outbox.written + (lost if way == "kafka" else []))


@pytest.mark.guarantee(86)
def test_a_replaced_output_topic_is_found(
    outbox: Outbox,
    settings: Settings,
    kafka: KafkaServer,
    before_it_happens: Callable[[], None],
    happens: Callable[..., None],
) -> None:
    before_it_happens()
    happens(
        lambda: recreate_topic(kafka.bootstrap_servers, outbox.topic),
        "output_topic_replaced",
        f"publisher resume --from kafka --accept-new-topic {outbox.topic}",
        f"publisher replay start --topic {outbox.topic}",
    )
    report = resume(settings, "--from", "kafka", "--yes", "--accept-new-topic", outbox.topic)
    assert total(report, "again") == total(report, "skipped") == 0
    outbox.batch(simple(51, keys=4))
    deliver(settings)
    with Watcher(kafka.bootstrap_servers, outbox.topic, tolerant=True) as watcher:
        assert_seen(watcher, outbox.written[EVENTS:])


@pytest.mark.guarantee(85)
def test_a_database_from_before_the_lanes_were_changed_is_found(
    outbox: Outbox, settings: Settings, postgres: PostgresServer, watcher: Watcher
) -> None:
    outbox.batch(simple(1, keys=4))
    deliver(settings)
    dump = Dump(postgres, outbox.dsn)
    # The extra lane's partition is nobody's in the restored database.
    outbox.add_epoch(2, 2, 3)
    outbox.batch(simple(2, keys=4))
    deliver(settings)
    dump.restore()
    dump.drop()
    outbox.lanes = 2
    stops_with(outbox, settings, "database_restored", "lane epoch 2", "--from kafka")
    report = resume(settings, "--from", "kafka", "--yes")
    assert total(report, "unknown") == EVENTS
    outbox.batch(simple(2, keys=4))
    deliver(settings)
    # The epoch comes again, with other batches: what the lost one left behind is nothing to it.
    outbox.add_epoch(2, 3, 3)
    outbox.batch(simple(3, keys=4))
    deliver(settings)
    assert_seen(watcher, outbox.written)


def test_a_lane_that_only_a_later_epoch_had_tells_of_it(
    outbox: Outbox, settings: Settings, kafka: KafkaServer, postgres: PostgresServer
) -> None:
    outbox.batch(simple(1, keys=4))
    deliver(settings)
    dump = Dump(postgres, outbox.dsn)
    outbox.add_epoch(2, 2, 3)
    outbox.batch(simple(2, keys=4))
    deliver(settings)
    dump.restore()
    dump.drop()
    name = progress_topic(outbox.dsn)
    records = progress_records(kafka.bootstrap_servers, name, 3)
    only_third = [[record for record in records[lane] if record.key.startswith(b"1/")] for lane in (0, 1)]
    set_back_progress(kafka.bootstrap_servers, name, [*only_third, records[2]])
    outbox.lanes = 2
    outbox.batch(simple(2, keys=4))
    # Lane 1 sees nothing wrong, so the process continues with it.
    with RelayThread(settings):
        wait_until(
            lambda: (
                query(
                    outbox.dsn,
                    "SELECT count(*) FROM outbox.lane WHERE stopped_reason LIKE %s",
                    "%lane epoch 2%",
                )
                == [(1,)]
            ),
            "the stop",
        )


class Spare:
    """A cluster of this module's own, that its tests rebuild."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._server = Kafka(folder / "1", fast=True)
        self._server.start()

    @property
    def bootstrap_servers(self) -> str:
        """Always the same."""
        return self._server.bootstrap_servers

    def rebuild(self, topic: str) -> None:
        """Put another cluster behind the same address, empty but for this topic."""
        port = self._server.port
        self._server.destroy()
        self._server = Kafka(self._folder / uuid4().hex, fast=True, port=port)
        self._server.start()
        create_topics(self.bootstrap_servers, {topic: (3, {})})

    def destroy(self) -> None:
        """Kill it, delete its data."""
        self._server.destroy()


@pytest.fixture(scope="module")
def spare_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spare]:
    """That cluster."""
    spare = Spare(tmp_path_factory.mktemp("spare"))
    yield spare
    spare.destroy()


@pytest.mark.guarantee(85, 166)
@pytest.mark.parametrize("running", [False, True], ids=["at the start", "while it runs"])
@pytest.mark.parametrize("way", ["mirror", "beginning"])
def test_a_rebuilt_cluster_is_found(database: str, spare_kafka: Spare, running: bool, way: str) -> None:
    topic = f"events-{uuid4().hex[:8]}"
    create_topics(spare_kafka.bootstrap_servers, {topic: (3, {})})
    outbox = Outbox(database, topic)
    settings = settings_for(database, spare_kafka.bootstrap_servers)
    outbox.batch(simple(1, keys=4))
    outbox.batch({})
    words = ("other_cluster", "publisher resume --from mirror --accept-new-cluster")
    if running:
        with RelayThread(settings) as relay:
            wait_until(lambda: drained(database), "the delivery")
            spare_kafka.rebuild(topic)
            outbox.batch(simple(2, keys=4))
            wait_for_stop(outbox, relay, *words)
    else:
        deliver(settings)
        spare_kafka.rebuild(topic)
        outbox.batch(simple(2, keys=4))
        stops_with(outbox, settings, *words)
    with pytest.raises(Exception, match="other_cluster"):
        resume(settings, "--from", way, "--yes")
    report = resume(settings, "--from", way, "--yes", "--accept-new-cluster")
    assert total(report, "again") == (EVENTS if way == "beginning" else 0)
    assert total(report, "trusted") == (EVENTS if way == "mirror" else 0)
    deliver(settings)
    with Watcher(spare_kafka.bootstrap_servers, topic, tolerant=True) as watcher:
        assert_seen(watcher, outbox.written if way == "beginning" else outbox.written[EVENTS:])


@pytest.mark.guarantee(87)
def test_a_copy_on_another_server_is_found_and_may_take_over(
    outbox: Outbox, settings: Settings, watcher: Watcher
) -> None:
    outbox.batch(simple(1, keys=4))
    deliver(settings)
    # As pg_restore leaves it on another server: the recorded server is not this one.
    query(outbox.dsn, "UPDATE outbox.identity SET system_identifier = system_identifier + 1")
    outbox.batch(simple(2, keys=4))
    stops_with(outbox, settings, "other_postgres_server", "publisher resume --from kafka --accept-new-server")
    with pytest.raises(Exception, match="other_postgres_server"):
        resume(settings, "--from", "kafka", "--yes")
    report = resume(settings, "--from", "kafka", "--yes", "--accept-new-server")
    assert report["lanes"] == []
    deliver(settings)
    assert_exactly_once(outbox, watcher)


def progress_records(bootstrap: str, name: str, partitions: int) -> list[list[StoredProgress]]:
    """Every progress record of each partition, the newest first."""
    settings = KafkaSettings(bootstrap_servers=bootstrap)
    topics = Topics(admin_client(settings), timeout_s=30, create=False)
    found = []
    for partition in range(partitions):
        high = topics.high_watermark(name, partition)
        with committed_reader(settings) as reader:
            found.append(list(records_backwards(reader, name, partition, high)))
    return found


def set_back_progress(bootstrap: str, name: str, records: list[list[StoredProgress]]) -> None:
    """Make the progress topic hold what it held when `records` were read."""
    delete_topic(bootstrap, name)
    create_topics(bootstrap, {name: (len(records), {"cleanup.policy": "compact"})})
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for partition, newest_first in enumerate(records):
        for record in reversed(newest_first):
            producer.produce(name, record.value, record.key, partition)
    assert producer.flush(30) == 0
