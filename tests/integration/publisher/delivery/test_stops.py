"""A lane that cannot continue without losing or repeating events stops and says why."""

from uuid import uuid4

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic
from typer.testing import CliRunner

from devstack.kafka import KafkaServer
from devstack.topics import create_topics
from publisher.cli import app
from service.settings import Settings
from tests.support.outbox.batches import Outbox, Session, simple
from tests.support.outbox.deliveries import assert_exactly_once, deliver, drained, reasons, status_of
from tests.support.outbox.restoring import delete_topic, progress_topic
from tests.support.processes.publishers import RelayThread, settings_for
from tests.support.queries import query
from tests.support.waiting import wait_until
from tests.support.watching import Watcher


def stops_with(outbox: Outbox, settings: Settings, why: str) -> None:
    """Run, and expect that every lane stops for this reason and the process ends by itself with it."""
    before = query(outbox.dsn, "SELECT count(*) FROM outbox.delivery")
    with RelayThread(settings) as relay:
        wait_until(relay.ended, f"the stop for {why}")
    assert why in str(relay.error)
    assert getattr(relay.error, "exit_code", None) == 5
    assert query(outbox.dsn, "SELECT count(*) FROM outbox.delivery") == before


def test_another_commit_at_the_cursor_stops_the_lane(outbox: Outbox, settings: Settings) -> None:
    outbox.batch(simple(1, keys=4))
    deliver(settings)
    query(outbox.dsn, "UPDATE outbox.batch SET commit_id = %s", uuid4())
    outbox.batch(simple(2, keys=4))
    stops_with(outbox, settings, "database_restored")
    assert all(reason.startswith("database_restored") for reason in reasons(outbox.dsn))


@pytest.mark.guarantee(85)
def test_another_commit_at_the_cursor_stops_the_lane_while_it_runs(
    outbox: Outbox, settings: Settings, watcher: Watcher
) -> None:
    outbox.batch(simple(1, keys=4))
    with RelayThread(settings) as relay:
        wait_until(lambda: drained(outbox.dsn), "the first batch")
        delivered = len(outbox.written)
        query(outbox.dsn, "UPDATE outbox.batch SET commit_id = %s", uuid4())
        outbox.batch(simple(2, keys=4))
        wait_until(relay.ended, "the stop")
    assert "database_restored" in str(relay.error)
    watcher.wait_until_all_read()
    assert len(watcher.seen) == delivered


def test_a_missing_ledger_row_at_the_cursor_stops_the_lane(outbox: Outbox, settings: Settings) -> None:
    outbox.batch(simple(1, keys=4))
    outbox.batch(simple(2, keys=4))
    deliver(settings)
    query(outbox.dsn, "DELETE FROM outbox.batch WHERE batch_id = 2")
    stops_with(outbox, settings, "database_restored")


def test_a_mirror_more_than_one_transaction_behind_stops_the_lane(outbox: Outbox, settings: Settings) -> None:
    for batch in range(1, 4):
        outbox.batch(simple(batch, keys=4))
        deliver(settings)
    query(outbox.dsn, "DELETE FROM outbox.delivery WHERE seq > 1")
    query(
        outbox.dsn,
        "UPDATE outbox.lane SET seq = 1, cursor_batch = 1,"
        " cursor_commit_id = (SELECT commit_id FROM outbox.batch WHERE batch_id = 1)",
    )
    stops_with(outbox, settings, "database_restored")


def test_kafka_without_the_progress_topic_stops_the_lane_and_does_not_make_it_anew(
    outbox: Outbox, settings: Settings, kafka: KafkaServer
) -> None:
    outbox.batch(simple(1, keys=4))
    deliver(settings)
    delete_topic(kafka.bootstrap_servers, progress_topic(outbox.dsn))
    outbox.batch(simple(2, keys=4))
    stops_with(outbox, settings, "kafka_lost")
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    name = progress_topic(outbox.dsn)
    assert admin.list_topics(name, timeout=30).topics[name].error is not None


def test_an_emptied_progress_topic_stops_the_lane(
    outbox: Outbox, settings: Settings, kafka: KafkaServer
) -> None:
    outbox.batch(simple(1, keys=4))
    deliver(settings)
    name = progress_topic(outbox.dsn)
    delete_topic(kafka.bootstrap_servers, name)
    create_topics(kafka.bootstrap_servers, {name: (2, {"cleanup.policy": "compact"})})
    outbox.batch(simple(2, keys=4))
    stops_with(outbox, settings, "kafka_lost")


def test_another_cluster_is_refused(outbox: Outbox, settings: Settings) -> None:
    outbox.batch(simple(1, keys=4))
    deliver(settings)
    query(outbox.dsn, "UPDATE outbox.identity SET cluster_id = 'AnotherClusterAltogether'")
    stops_with(outbox, settings, "other_cluster")


@pytest.mark.guarantee(177)
def test_another_transactional_id_prefix_is_refused(
    outbox: Outbox, settings: Settings, kafka: KafkaServer
) -> None:
    outbox.batch(simple(1, keys=4))
    deliver(settings)
    changed = settings_for(outbox.dsn, kafka.bootstrap_servers, transactional_id_prefix="changed")
    stops_with(outbox, changed, "other_transactional_id_prefix")


@pytest.mark.guarantee(87)
def test_a_database_restored_on_another_server_is_refused(outbox: Outbox, settings: Settings) -> None:
    query(outbox.dsn, "UPDATE outbox.identity SET system_identifier = system_identifier + 1")
    outbox.batch(simple(1, keys=4))
    stops_with(outbox, settings, "other_postgres_server")


@pytest.mark.guarantee(86)
def test_a_replaced_output_topic_stops_the_lane(
    outbox: Outbox, settings: Settings, kafka: KafkaServer
) -> None:
    outbox.batch(simple(1, keys=4))
    deliver(settings)
    delete_topic(kafka.bootstrap_servers, outbox.topic)
    create_topics(kafka.bootstrap_servers, {outbox.topic: (3, {})})
    outbox.batch(simple(2, keys=4))
    stops_with(outbox, settings, "output_topic_replaced")


@pytest.mark.guarantee(73)
def test_parked_rows_lost_in_a_failover_stop_the_lane(database: str, topic: str, kafka: KafkaServer) -> None:
    outbox = Outbox(database, topic, lanes=1)
    settings = settings_for(database, kafka.bootstrap_servers)
    outbox.batch(
        simple(1, keys=4)
        | {"bad": [Session([b"1"], 7, partitions=[99])], "worse": [Session([b"1"], 8, partitions=[99])]}
    )
    deliver(settings)
    set_back = "UPDATE outbox.lane SET seq = 0, cursor_batch = 0, cursor_key = NULL, cursor_commit_id = NULL, sessions = 0, events = 0"
    # With the parked rows a mirror one behind is the trace of a crash, and filled.
    query(database, "DELETE FROM outbox.delivery")
    query(database, set_back)
    deliver(settings)
    query(database, "DELETE FROM outbox.delivery")
    query(database, set_back)
    query(database, "DELETE FROM outbox.parked WHERE session_key = 'bad'")
    stops_with(outbox, settings, "database_restored")
    assert "passed 2 parked rows, but outbox.parked has 1" in reasons(outbox.dsn)[0]


@pytest.mark.guarantee(87)
def test_a_connection_that_leads_to_another_outbox_later_stops_the_publisher(
    outbox: Outbox, settings: Settings
) -> None:
    outbox.batch(simple(1, keys=4))
    with RelayThread(settings) as relay:
        wait_until(lambda: drained(outbox.dsn), "the first batch")
        query(outbox.dsn, "UPDATE outbox.identity SET outbox_uuid = gen_random_uuid()")
        query(
            outbox.dsn,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name LIKE 'publisher lane%%'",
        )
        wait_until(relay.ended, "the stop")
    assert "other_outbox" in str(relay.error)


def test_a_lane_with_a_backlog_that_nobody_holds_is_not_healthy(outbox: Outbox, settings: Settings) -> None:
    outbox.batch(simple(1, keys=4))
    deliver(settings)
    assert status_of(outbox.dsn).healthy
    outbox.batch(simple(2, keys=4))
    assert not status_of(outbox.dsn).healthy


def test_the_lag_of_a_new_epoch_counts_from_its_first_batch(outbox: Outbox, settings: Settings) -> None:
    for batch in range(1, 6):
        outbox.batch(simple(batch, keys=4))
    deliver(settings)
    outbox.add_epoch(2, 6, 1)
    outbox.batch(simple(6, keys=4))
    assert [lane.lag_batches for lane in status_of(outbox.dsn).lanes if lane.epoch == 2] == [1]


@pytest.mark.guarantee(85)
def test_a_gap_in_the_ledger_stops_the_lane(outbox: Outbox, settings: Settings) -> None:
    for batch in range(1, 4):
        outbox.batch(simple(batch, keys=4))
    query(outbox.dsn, "DELETE FROM outbox.batch WHERE batch_id = 2")
    stops_with(outbox, settings, "ledger_gap")


def test_a_progress_topic_that_is_not_compacted_is_refused(
    outbox: Outbox, settings: Settings, kafka: KafkaServer, watcher: Watcher
) -> None:
    name = progress_topic(outbox.dsn)
    create_topics(kafka.bootstrap_servers, {name: (2, {"cleanup.policy": "delete"})})
    outbox.batch(simple(1, keys=4))
    with RelayThread(settings):
        wait_until(
            lambda: (
                bool(reasons(outbox.dsn))
                and all(reason.startswith("progress_topic_not_compacted") for reason in reasons(outbox.dsn))
            ),
            "the refusal",
        )
        assert watcher.seen == []
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        change = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[change])
        admin.incremental_alter_configs([resource])[resource].result()
        wait_until(lambda: drained(outbox.dsn), "the delivery once the topic was mended")
    assert_exactly_once(outbox, watcher)


@pytest.fixture
def missing(topic_prefix: str) -> str:
    """The name of a topic that does not exist."""
    return f"{topic_prefix}missing"


@pytest.mark.guarantee(68)
def test_a_missing_output_topic_stops_the_lane_until_it_is_there(
    database: str, kafka: KafkaServer, missing: str
) -> None:
    outbox = Outbox(database, missing, lanes=1)
    settings = settings_for(database, kafka.bootstrap_servers)
    outbox.batch(simple(1, keys=4))
    with RelayThread(settings):
        wait_until(
            lambda: any("output_topic_missing" in reason for reason in reasons(outbox.dsn)), "the stop"
        )
        result = CliRunner(
            env={
                "OUTBOX_POSTGRES__DSN": database,
                "OUTBOX_KAFKA__BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
            }
        ).invoke(app, ["status", "--json"])
        assert result.exit_code == 1
        assert "output_topic_missing" in result.stdout
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        admin.create_topics([NewTopic(missing, num_partitions=1)])[missing].result()
        wait_until(lambda: drained(database), "the delivery once the topic was there")
        assert reasons(outbox.dsn) == [""]
    with Watcher(kafka.bootstrap_servers, missing, tolerant=True) as watcher:
        assert_exactly_once(outbox, watcher)


def test_a_missing_output_topic_is_created_where_that_is_allowed(
    database: str, kafka: KafkaServer, missing: str
) -> None:
    outbox = Outbox(database, missing, lanes=2)
    outbox.batch(simple(1, keys=4))
    deliver(settings_for(database, kafka.bootstrap_servers, create_topics=True))
    with Watcher(kafka.bootstrap_servers, missing, tolerant=True) as watcher:
        assert_exactly_once(outbox, watcher)
