"""Every row of the outbox reaches Kafka exactly once and in order, whoever dies in between."""

import random
import signal
import time
from pathlib import Path

import psycopg
import pytest

from devstack.kafka import KafkaServer
from service.settings import Settings
from tests.support.outbox.batches import Outbox, Session, simple
from tests.support.outbox.deliveries import assert_exactly_once, drained, status_of
from tests.support.processes.publishers import RelayThread, publisher_service, settings_for
from tests.support.queries import query
from tests.support.waiting import wait_until
from tests.support.watching import Watcher

KILLS = 12


@pytest.mark.guarantee(27, 46)
def test_events_arrive_once_although_the_publisher_is_killed_again_and_again(
    outbox: Outbox, kafka: KafkaServer, watcher: Watcher, tmp_path: Path
) -> None:
    seed = time.time_ns()
    print(f"seed {seed}")
    chance = random.Random(seed)
    settings = settings_for(outbox.dsn, kafka.bootstrap_servers, transaction_sessions=11)
    process = publisher_service(settings, tmp_path / "publisher.log")
    batch = 0
    for _ in range(KILLS):
        before = len(watcher.seen)
        for _ in range(4):
            batch += 1
            outbox.batch(simple(batch, keys=60, events=5))
        with process:
            # Killed somewhere in the middle of the work, never before it began.
            enough = min(before + chance.randint(1, 900), len(outbox.written))
            wait_until(lambda enough=enough: len(watcher.seen) >= enough, process.log)  # type: ignore[misc]
            process.kill()
    with process:
        wait_until(lambda: drained(outbox.dsn), process.log)
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0
    assert_exactly_once(outbox, watcher)


@pytest.mark.guarantee(28, 170)
def test_a_delivery_whose_record_was_lost_in_a_crash_is_filled_in_and_not_repeated(
    outbox: Outbox, settings: Settings, watcher: Watcher, tmp_path: Path
) -> None:
    process = publisher_service(settings, tmp_path / "publisher.log")
    outbox.batch(simple(1, keys=4))
    with process:
        wait_until(lambda: drained(outbox.dsn), process.log)
        with psycopg.connect(outbox.dsn) as blocker:
            # Kafka commits, Postgres cannot record it: then the process dies.
            blocker.execute("SELECT FROM outbox.lane FOR UPDATE")
            outbox.batch(simple(2, keys=4))
            wait_until(lambda: len(watcher.seen) == len(outbox.written), "the second batch in Kafka")
            process.kill()
            # A backend does not notice that its client died while it waits for a lock.
            query(
                outbox.dsn,
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND application_name LIKE 'publisher lane%%'",
            )
    with process:
        wait_until(lambda: drained(outbox.dsn), process.log)
    assert_exactly_once(outbox, watcher)
    unknown = query(
        outbox.dsn,
        "SELECT after_batch, to_batch, sessions, events FROM outbox.delivery WHERE kafka_offsets IS NULL",
    )
    assert unknown == [(1, 2, 2, 6), (1, 2, 2, 6)], process.log()
    mirrored = query(
        outbox.dsn,
        "SELECT l.seq, l.sessions, l.events, max(d.seq), sum(d.sessions), sum(d.events)"
        " FROM outbox.lane l JOIN outbox.delivery d USING (epoch, lane) GROUP BY l.epoch, l.lane",
    )
    assert all(lane[:3] == tuple(map(int, lane[3:])) for lane in mirrored)


@pytest.mark.guarantee(47)
def test_two_publishers_share_the_work_and_repeat_nothing(
    outbox: Outbox, settings: Settings, watcher: Watcher, tmp_path: Path
) -> None:
    first = publisher_service(settings, tmp_path / "first.log")
    second = publisher_service(settings, tmp_path / "second.log")
    with first, second:
        for batch in range(1, 21):
            outbox.batch(simple(batch, keys=20))
        wait_until(lambda: len(watcher.seen) > 100, second.log)
        # Whichever holds the lanes: the other one takes over at once, long before a lease runs out.
        first.kill()
        for batch in range(21, 31):
            outbox.batch(simple(batch, keys=20))
        wait_until(lambda: drained(outbox.dsn), second.log)
    assert_exactly_once(outbox, watcher)


@pytest.mark.guarantee(29)
def test_a_stopped_publisher_that_wakes_up_later_is_fenced(
    outbox: Outbox, settings: Settings, watcher: Watcher, tmp_path: Path
) -> None:
    sleeper = publisher_service(settings, tmp_path / "sleeper.log")
    with sleeper:
        outbox.batch(simple(1, keys=10))
        wait_until(lambda: drained(outbox.dsn), sleeper.log)
        sleeper.pause()
        outbox.batch(simple(2, keys=10))
        with RelayThread(settings):
            wait_until(lambda: drained(outbox.dsn), "the other publisher's take-over once the lease ran out")
            sleeper.resume()
            for batch in range(3, 10):
                outbox.batch(simple(batch, keys=10))
            wait_until(lambda: drained(outbox.dsn), "the rest")
    assert_exactly_once(outbox, watcher)


@pytest.mark.guarantee(58, 121)
def test_sigterm_finishes_the_transaction_and_leaves_nothing_behind(
    outbox: Outbox, settings: Settings, watcher: Watcher, tmp_path: Path
) -> None:
    for batch in range(1, 30):
        outbox.batch(simple(batch, keys=50))
    process = publisher_service(settings, tmp_path / "publisher.log")
    with process:
        wait_until(lambda: len(watcher.seen) > 0, process.log)
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0, process.log()
    assert query(outbox.dsn, "SELECT lane FROM outbox.lane WHERE lease_holder IS NOT NULL") == []
    assert (
        query(
            outbox.dsn,
            "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'publisher%%'"
            " AND datname = current_database()",
        )
        == []
    )
    with RelayThread(settings):
        wait_until(lambda: drained(outbox.dsn), "the rest")
    assert_exactly_once(outbox, watcher)


def test_a_lane_without_rows_advances(outbox: Outbox, settings: Settings) -> None:
    with RelayThread(settings):
        for batch in range(1, 4):
            outbox.batch({"b": [Session([b"x"], batch)]})
        wait_until(lambda: drained(outbox.dsn), "both lanes at batch 3")
        idle = [lane for lane in status_of(outbox.dsn).lanes if lane.events == 0]
        assert [(lane.lane, lane.cursor_batch) for lane in idle] == [(1 - outbox.lane_of("b"), 3)]
        seqs = [lane.seq for lane in status_of(outbox.dsn).lanes]
        outbox.batch({"b": [Session([b"y"], 4)]})
        wait_until(lambda: drained(outbox.dsn), "both lanes at batch 4")
    # Once there was nothing new, nobody wrote progress.
    assert [lane.seq - before for lane, before in zip(status_of(outbox.dsn).lanes, seqs, strict=True)] == [
        1,
        1,
    ]


@pytest.mark.guarantee(2, 46)
def test_several_sessions_of_a_key_in_one_batch_go_out_in_closing_order(
    outbox: Outbox, settings: Settings, watcher: Watcher
) -> None:
    outbox.batch({"key": [Session([b"1", b"2"], 10), Session([], 15), Session([b"3"], 20)]})
    outbox.batch({"key": [Session([b"4", None], 30)], "empty": [Session([], 31)]})
    with RelayThread(settings):
        wait_until(lambda: drained(outbox.dsn), "everything")
    assert_exactly_once(outbox, watcher)
    assert [event.value for event in watcher.seen] == [b"1", b"2", b"3", b"4", None]


@pytest.mark.guarantee(6, 51, 53)
def test_keys_headers_partitions_timestamps_and_revision_go_out_as_stored(
    outbox: Outbox, kafka: KafkaServer, watcher: Watcher
) -> None:
    settings = settings_for(
        outbox.dsn, kafka.bootstrap_servers, headers=("batch", "session_key", "session_outputs")
    )
    outbox.batch(
        {
            "schlüssel": [
                Session(
                    [b"\x00\xff", b"2"],
                    7,
                    keys=[b"own", None],
                    headers=[[["name", "wört"], ["raw", {"base64": "AP8="}], ["none", None]], None],
                    partitions=[2, None],
                )
            ]
        },
        revision=3,
    )
    with RelayThread(settings):
        wait_until(lambda: drained(outbox.dsn), "the row")
    assert_exactly_once(outbox, watcher)
    common = [
        ("outbox-revision", b"3"),
        ("outbox-batch", b"1"),
        ("outbox-session-key", "schlüssel".encode()),
        ("outbox-session-outputs", b"2"),
    ]
    own = next(event for event in watcher.seen if event.key == b"own")
    assert own.partition == 2
    assert [*own.headers[1:]] == [*common, ("name", "wört".encode()), ("raw", b"\x00\xff"), ("none", None)]
    other = next(event for event in watcher.seen if event.key != b"own")
    assert [*other.headers[1:]] == common


@pytest.mark.guarantee(48, 178)
def test_a_new_epoch_starts_when_every_lane_of_the_old_one_is_through(
    outbox: Outbox, settings: Settings, watcher: Watcher
) -> None:
    for batch in range(1, 6):
        outbox.batch(simple(batch, keys=12))
    outbox.add_epoch(2, 6, lanes=5)
    for batch in range(6, 11):
        outbox.batch(simple(batch, keys=12))
    with RelayThread(settings):
        wait_until(lambda: len(watcher.seen) == len(outbox.written), "both epochs")
        wait_until(lambda: drained(outbox.dsn), "both epochs")
    assert_exactly_once(outbox, watcher)
    ends = query(outbox.dsn, "SELECT epoch, lane, cursor_batch FROM outbox.lane ORDER BY epoch, lane")
    assert ends == [(1, 0, 5), (1, 1, 5), *((2, lane, 10) for lane in range(5))]
    # No delivery of the new epoch was made before the last one of the old.
    order = query(outbox.dsn, "SELECT epoch FROM outbox.delivery ORDER BY committed_at, epoch")
    assert order == sorted(order)


def test_the_offsets_of_a_delivery_are_those_in_kafka(
    outbox: Outbox, settings: Settings, watcher: Watcher
) -> None:
    outbox.batch(simple(1, keys=40))
    with RelayThread(settings):
        wait_until(lambda: drained(outbox.dsn), "the batch")
    assert_exactly_once(outbox, watcher)
    recorded = query(
        outbox.dsn,
        "SELECT p.key::int, min((p.value->>0)::bigint), max((p.value->>1)::bigint)"
        " FROM outbox.delivery d, jsonb_each(d.kafka_offsets->%s) p GROUP BY 1 ORDER BY 1",
        outbox.topic,
    )
    partitions = sorted({event.partition for event in watcher.seen})
    assert recorded == [
        (p, *(f(e.offset for e in watcher.seen if e.partition == p) for f in (min, max))) for p in partitions
    ]
