"""`publisher resume` says what it will do, does it, and no event is lost on the way."""

from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Producer

from contract.cursor import Cursor
from contract.progress import Progress
from devstack.databases import PostgresServer
from devstack.kafka import KafkaServer
from service.errors import ContinuityError, SettingsError
from service.settings import Settings
from tests.support.outbox.batches import Outbox, Session, simple
from tests.support.outbox.deliveries import assert_exactly_once, deliver, drained
from tests.support.outbox.restoring import (
    Dump,
    Written,
    assert_seen,
    delete_topic,
    progress_topic,
    resume,
    resume_fails_at,
    stops_with,
    total,
)
from tests.support.processes.publishers import RelayThread, settings_for
from tests.support.queries import query
from tests.support.waiting import wait_until
from tests.support.watching import Watcher

EVENTS = 12  # of simple(n, keys=4)


@pytest.mark.guarantee(88, 144)
def test_after_a_restore_of_the_database_the_lanes_continue_from_kafka_and_repeat_what_was_announced(
    outbox: Outbox, settings: Settings, postgres: PostgresServer, watcher: Watcher
) -> None:
    outbox.batch(simple(1, keys=4))
    outbox.batch({})  # nothing at the cursor to tell the histories apart but the ledger
    deliver(settings)
    dump = Dump(postgres, outbox.dsn)
    outbox.batch(simple(3, keys=4))
    deliver(settings)
    outbox.batch(simple(4, keys=4))
    deliver(settings)
    dump.restore()
    dump.drop()
    stops_with(outbox, settings, "database_restored", "publisher resume --from kafka")

    report = resume(settings, "--from", "kafka", "--yes")
    assert [lane["goes_on_after"]["batch_id"] for lane in report["lanes"]] == [2, 2]
    assert (total(report, "again"), total(report, "skipped"), total(report, "trusted")) == (0, 0, 0)
    assert total(report, "unknown") == 2 * EVENTS
    # The job reads the lost part of its input again: equal outbox-ids.
    outbox.batch(simple(3, keys=4))
    outbox.batch(simple(4, keys=4))
    outbox.batch(simple(5, keys=4))
    deliver(settings)
    assert_seen(watcher, outbox.written)
    assert len(outbox.written) == 4 * EVENTS + total(report, "unknown")
    assert_last_in_order(watcher, outbox.written[-3 * EVENTS :])
    assert query(outbox.dsn, "SELECT DISTINCT note FROM outbox.delivery WHERE kind = 'resume'") == [
        ("--from kafka",)
    ]


@pytest.mark.parametrize(
    "kind", ["names no commit id", "not a progress record", "belongs to outbox", "is number"]
)
def test_a_record_that_another_program_writes_to_the_progress_topic_stops_the_lane_and_sends_nothing_again(
    outbox: Outbox, settings: Settings, kafka: KafkaServer, watcher: Watcher, kind: str
) -> None:
    """Such a record once set the lane back to the beginning; and some could not be passed by a resume."""
    outbox.batch(simple(1, keys=4))
    deliver(settings)
    topic = progress_topic(outbox.dsn)
    outbox_uuid, cluster_id = query(outbox.dsn, "SELECT outbox_uuid, cluster_id FROM outbox.identity")[0]
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for lane, seq in query(outbox.dsn, "SELECT lane, seq FROM outbox.lane ORDER BY lane"):
        forged = Progress(
            outbox_uuid,
            cluster_id,
            1,
            lane,
            seq + 1,
            Cursor(0),
            Cursor(0),
            None,
            0,
            0,
            resumed="--from beginning",
        )
        if kind == "belongs to outbox":
            forged = replace(forged, outbox_uuid=uuid4())
        elif kind == "is number":
            forged = replace(forged, seq=2**63 - 1, commit_id=uuid4(), cursor=Cursor(1))
        value = b"{}" if kind == "not a progress record" else forged.encode()
        producer.produce(topic, value, forged.key(), lane)
    assert producer.flush(30) == 0
    stops_with(outbox, settings, "other_outbox", kind, "publisher resume --from mirror")

    report = resume(settings, "--from", "mirror", "--yes")
    assert (total(report, "again"), total(report, "skipped")) == (0, 0)
    outbox.batch(simple(2, keys=4))
    deliver(settings)
    assert_exactly_once(outbox, watcher)


@pytest.mark.guarantee(166)
def test_after_the_loss_of_the_progress_topic_the_mirror_is_trusted_and_nothing_is_sent_again(
    outbox: Outbox, settings: Settings, kafka: KafkaServer, watcher: Watcher
) -> None:
    outbox.batch(simple(1, keys=4))
    deliver(settings)
    delete_topic(kafka.bootstrap_servers, progress_topic(outbox.dsn))
    outbox.batch(simple(2, keys=4))
    stops_with(outbox, settings, "kafka_lost", "publisher resume --from mirror", "--from beginning")
    with pytest.raises(
        ContinuityError, match=r"Kafka has no progress record.*Nothing was changed.*--from mirror"
    ):
        resume(settings, "--from", "kafka", "--yes")

    report = resume(settings, "--from", "mirror", "--yes")
    assert total(report, "trusted") == EVENTS
    assert (total(report, "again"), total(report, "skipped"), total(report, "unknown")) == (0, 0, 0)
    deliver(settings)
    assert_exactly_once(outbox, watcher)


@pytest.mark.guarantee(88, 167)
@pytest.mark.parametrize(
    ("way", "again", "skipped"),
    [(["beginning"], 2, 0), (["batch", "2"], 1, 0), (["batch", "4"], 0, 1)],
)
def test_a_batch_may_be_named_to_continue_from(
    outbox: Outbox, settings: Settings, watcher: Watcher, way: list[str], again: int, skipped: int
) -> None:
    outbox.batch(simple(1, keys=4))
    deliver(settings)
    outbox.batch(simple(2, keys=4))
    deliver(settings)
    outbox.batch(simple(3, keys=4))
    outbox.batch(simple(4, keys=4))
    report = resume(settings, "--from", *way, "--yes")
    assert (total(report, "again"), total(report, "skipped")) == (again * EVENTS, skipped * EVENTS)
    deliver(settings)
    written = outbox.written
    sent_again = written[(2 - again) * EVENTS : 2 * EVENTS]
    assert_seen(watcher, written[: 2 * EVENTS] + sent_again + written[(2 + skipped) * EVENTS :])


@pytest.mark.guarantee(89)
def test_a_running_publisher_is_fenced_and_continues_by_itself(
    outbox: Outbox, settings: Settings, watcher: Watcher
) -> None:
    outbox.batch(simple(1, keys=4))
    with RelayThread(settings) as relay:
        wait_until(lambda: drained(outbox.dsn), "the first batch")
        report = resume(settings, "--from", "batch", "1", "--yes")
        assert total(report, "again") == EVENTS
        outbox.batch(simple(2, keys=4))
        wait_until(lambda: drained(outbox.dsn), "the delivery")
        assert not relay.ended()
    assert_seen(watcher, outbox.written[:EVENTS] + outbox.written)


@pytest.mark.guarantee(89)
def test_lanes_that_are_in_step_are_left_alone(outbox: Outbox, settings: Settings, watcher: Watcher) -> None:
    outbox.batch(simple(1, keys=4))
    deliver(settings)
    tokens = query(outbox.dsn, "SELECT lane, lease_token FROM outbox.lane ORDER BY lane")
    for way in ("kafka", "mirror"):
        report = resume(settings, "--from", way)
        assert report["lanes"] == []
        assert not report["done"]
    assert query(outbox.dsn, "SELECT lane, lease_token FROM outbox.lane ORDER BY lane") == tokens


def test_only_the_named_lane_moves(outbox: Outbox, settings: Settings, watcher: Watcher) -> None:
    outbox.batch(simple(1, keys=4))
    deliver(settings)
    report = resume(settings, "--from", "beginning", "--lane", "1", "--yes")
    assert [lane["lane"] for lane in report["lanes"]] == [1]
    deliver(settings)
    again = [event for event in outbox.written if outbox.lane_of(event[0].decode()) == 1]
    assert 0 < len(again) == total(report, "again") < EVENTS
    assert_seen(watcher, outbox.written + again)


@pytest.mark.guarantee(88)
def test_it_asks_before_it_changes_anything(outbox: Outbox, settings: Settings) -> None:
    outbox.batch(simple(1, keys=4))
    deliver(settings)
    before = query(outbox.dsn, "SELECT * FROM outbox.lane ORDER BY lane")
    with pytest.raises(SettingsError, match="say --yes"):
        resume(settings, "--from", "beginning")
    assert total(resume(settings, "--from", "beginning", "--dry-run"), "again") == EVENTS
    with pytest.raises(SettingsError, match="batch 3 is not in the ledger, which ends at 1"):
        resume(settings, "--from", "batch", "3")
    assert query(outbox.dsn, "SELECT * FROM outbox.lane ORDER BY lane") == before


@pytest.mark.guarantee(88)
@pytest.mark.parametrize(
    "point",
    [
        "delivery.after_lease",
        "delivery.after_fencing",
        "transaction.before_commit",
        "transaction.after_commit",
        "delivery.after_record",
    ],
)
@pytest.mark.parametrize("again", [True, False], ids=["given again", "left so"])
@pytest.mark.faults
def test_a_resume_that_dies_is_given_again_or_left_to_the_publisher(
    outbox: Outbox,
    settings: Settings,
    kafka: KafkaServer,
    watcher: Watcher,
    tmp_path: Path,
    point: str,
    again: bool,
) -> None:
    outbox.batch(simple(1, keys=4))
    deliver(settings)
    outbox.batch(simple(2, keys=4))
    deliver(settings)
    delete_topic(kafka.bootstrap_servers, progress_topic(outbox.dsn))
    resume_fails_at(point, settings, tmp_path, "--from", "batch", "2", "--lane", "0", "--yes")
    if again:
        resume(settings, "--from", "batch", "2", "--lane", "0", "--yes")
    resume(settings, "--from", "batch", "2", "--lane", "1", "--yes")
    done = again or point in ("transaction.after_commit", "delivery.after_record")
    if not done:
        # As before: stopped, or for want of any record.
        resume(settings, "--from", "batch", "2", "--yes")
    outbox.batch(simple(3, keys=4))
    deliver(settings)
    assert_seen(watcher, outbox.written + outbox.written[EVENTS : 2 * EVENTS])
    assert query(outbox.dsn, "SELECT count(*) FROM outbox.delivery WHERE kind = 'resume'")[0][0] >= 2


def test_a_publisher_that_finds_a_resume_records_what_was_delivered_before_it(
    outbox: Outbox, settings: Settings, tmp_path: Path
) -> None:
    outbox.batch(simple(1, keys=4))
    deliver(settings)
    resume_fails_at(
        "transaction.after_commit", settings, tmp_path, "--from", "beginning", "--lane", "0", "--yes"
    )
    outbox.batch(simple(2, keys=4))
    deliver(settings)
    assert query(
        outbox.dsn, "SELECT lane, after_batch, to_batch FROM outbox.delivery WHERE kind = 'resume'"
    ) == [(0, 1, 0)]


def test_rows_that_were_parked_after_the_dump_are_not_passed(
    database: str, topic: str, kafka: KafkaServer, postgres: PostgresServer
) -> None:
    outbox = Outbox(database, topic, lanes=1)
    settings = settings_for(database, kafka.bootstrap_servers)
    outbox.batch(simple(1, keys=4))
    deliver(settings)
    for batch in (2, 3, 4):
        outbox.batch(simple(batch, keys=4) | {"bad": [Session([b"1"], batch, partitions=[99])]})
        deliver(settings)
    # As a dump of this moment that has the ledger but not what the publisher wrote last.
    query(database, "DELETE FROM outbox.parked WHERE batch_id > 2")
    query(database, "DELETE FROM outbox.delivery WHERE to_batch > 2")
    query(
        database,
        "UPDATE outbox.lane SET (seq, cursor_batch, cursor_commit_id) ="
        " (SELECT max(d.seq), 2, (SELECT commit_id FROM outbox.batch WHERE batch_id = 2) FROM outbox.delivery d)",
    )
    stops_with(outbox, settings, "database_restored")
    report = resume(settings, "--from", "kafka", "--yes")
    assert report["lanes"][0]["goes_on_after"]["batch_id"] == 2
    assert total(report, "unknown") == 2 * EVENTS
    deliver(settings)
    assert query(database, "SELECT batch_id FROM outbox.parked ORDER BY 1") == [(2,), (3,), (4,)]


def test_the_commands_of_a_wrong_use_are_refused(outbox: Outbox, settings: Settings) -> None:
    with pytest.raises(SettingsError, match="N is required with `--from batch`"):
        resume(settings, "--from", "batch")
    with pytest.raises(SettingsError, match="N is required with `--from batch`"):
        resume(settings, "--from", "kafka", "7")
    with pytest.raises(SettingsError, match="never delivered to that topic"):
        resume(settings, "--from", "kafka", "--accept-new-topic", "unheard-of")


@pytest.mark.guarantee(88)
def test_a_new_place_is_recorded_last_so_that_the_command_can_be_given_again(
    outbox: Outbox, settings: Settings, watcher: Watcher, tmp_path: Path
) -> None:
    outbox.batch(simple(1, keys=4))
    deliver(settings)
    query(outbox.dsn, "UPDATE outbox.identity SET system_identifier = system_identifier + 1")
    outbox.batch(simple(2, keys=4))
    arguments = ("--from", "batch", "2", "--accept-new-server", "--yes")
    resume_fails_at("resume.before_binding", settings, tmp_path, *arguments)
    with pytest.raises(ContinuityError, match="other_postgres_server"):
        resume(settings, "--from", "kafka")
    resume(settings, *arguments)
    deliver(settings)
    assert_exactly_once(outbox, watcher)


@pytest.mark.guarantee(89)
def test_a_stopped_lane_of_a_running_publisher_continues_by_itself(
    outbox: Outbox, settings: Settings, watcher: Watcher
) -> None:
    for batch in range(1, 4):
        outbox.batch(simple(batch, keys=4))
        deliver(settings)
    query(outbox.dsn, "DELETE FROM outbox.delivery WHERE lane = 0 AND to_batch > 1")
    query(
        outbox.dsn,
        "UPDATE outbox.lane SET (seq, cursor_batch, cursor_commit_id) ="
        " (SELECT max(d.seq), 1, (SELECT commit_id FROM outbox.batch WHERE batch_id = 1) FROM outbox.delivery d"
        " WHERE d.lane = 0) WHERE lane = 0",
    )
    stopped = "SELECT lane FROM outbox.lane WHERE stopped_why = 'database_restored'"
    with RelayThread(settings) as relay:
        wait_until(lambda: query(outbox.dsn, stopped) == [(0,)], "the stop")
        outbox.batch(simple(4, keys=4))
        resume(settings, "--from", "kafka", "--yes")
        wait_until(lambda: drained(outbox.dsn), "the delivery")
        assert query(outbox.dsn, stopped) == []
        assert not relay.ended()
    assert_exactly_once(outbox, watcher)


@pytest.mark.guarantee(169)
def test_what_retention_has_dropped_is_not_promised(
    outbox: Outbox, settings: Settings, watcher: Watcher
) -> None:
    outbox.batch({})
    query(outbox.dsn, "UPDATE outbox.batch SET batch_id = 9998")
    query(outbox.dsn, "UPDATE outbox.lane_epoch SET from_batch = 9999")
    query(outbox.dsn, "SELECT outbox.ensure_partitions(9998, 10005)")
    outbox.batch(simple(9999, keys=4))
    assert outbox.batch(simple(10000, keys=4)) == 10000
    deliver(settings)
    query(outbox.dsn, "DROP TABLE outbox.session_output_p00000000")
    gone = resume(settings, "--from", "batch", "9999", "--dry-run")
    assert (gone["first_batch"], gone["first_kept_batch"], total(gone, "again")) == (9999, 10000, EVENTS)
    report = resume(settings, "--from", "beginning", "--yes")
    assert (report["first_batch"], total(report, "again")) == (10000, EVENTS)
    deliver(settings)
    assert_seen(watcher, outbox.written + outbox.written[EVENTS:])


def test_a_resume_that_dies_after_its_commit_is_known_to_retention_until_the_lane_runs(
    outbox: Outbox, settings: Settings, watcher: Watcher, tmp_path: Path
) -> None:
    outbox.batch(simple(1, keys=4))
    deliver(settings)
    resume_fails_at(
        "transaction.after_commit", settings, tmp_path, "--from", "batch", "1", "--lane", "0", "--yes"
    )
    mirrors = "SELECT lane, cursor_batch, stopped_why FROM outbox.lane ORDER BY lane"
    assert query(outbox.dsn, mirrors) == [(0, 1, "resuming"), (1, 1, None)]
    with RelayThread(settings):
        wait_until(lambda: query(outbox.dsn, mirrors) == [(0, 1, None), (1, 1, None)], "the mark's end")
    again = [event for event in outbox.written if outbox.lane_of(event[0].decode()) == 0]
    assert_seen(watcher, outbox.written + again)


def assert_last_in_order(watcher: Watcher, written: Written) -> None:
    """Fail unless the newest events of each key are these, in this order."""
    for key in {key for key, _, _ in written}:
        wanted = [outbox_id for own, _, outbox_id in written if own == key]
        found = [event.outbox_id for event in watcher.seen if event.key == key]
        assert found[-len(wanted) :] == wanted
