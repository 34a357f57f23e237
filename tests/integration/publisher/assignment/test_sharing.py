"""Any number of publisher processes share the lanes: evenly, with the fewest moves, and nothing is lost, repeated or reordered."""

import random
import signal
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from devstack.kafka import KafkaServer
from service.lifecycle import fault_points
from service.lifecycle.fault_points import Action, Fault, FaultPlan
from tests.support.outbox.batches import Outbox, simple
from tests.support.outbox.deliveries import assert_exactly_once, drained, holders, spread, status_of
from tests.support.processes.publishers import RelayThread, publisher_service, settings_for
from tests.support.queries import query
from tests.support.waiting import wait_until
from tests.support.watching import Watcher

LANES = 8
# Longer than any test waits: whatever moves within a test was handed over, no lease ran out.
NEVER_S = 600.0


@pytest.fixture
def outbox(database: str, topic: str) -> Outbox:
    """An empty outbox with eight lanes."""
    return Outbox(database, topic, lanes=LANES)


def tokens(outbox: Outbox) -> dict[int, int]:
    """Lane -> how often it was taken over."""
    return dict(query(outbox.dsn, "SELECT lane, lease_token FROM outbox.lane"))


def ended(outbox: Outbox) -> set[str]:
    """The processes that have ended in order."""
    rows = query(
        outbox.dsn, "SELECT process_id::text FROM outbox.publisher_process WHERE ended_at IS NOT NULL"
    )
    return {process for (process,) in rows}


def wait_for_spread(outbox: Outbox, wanted: list[int]) -> None:
    """Return once each lane is held and runs, so many by each process."""
    wait_until(
        lambda: spread(outbox.dsn) == wanted, lambda: f"the spread {wanted}; it is {spread(outbox.dsn)}"
    )


@pytest.mark.guarantee(100)
def test_lanes_spread_evenly_and_only_those_move_that_must(
    outbox: Outbox, kafka: KafkaServer, watcher: Watcher
) -> None:
    settings = settings_for(outbox.dsn, kafka.bootstrap_servers, lease_s=NEVER_S, transaction_sessions=20)
    batch = 0

    def load() -> None:
        nonlocal batch
        for _ in range(4):
            batch += 1
            outbox.batch(simple(batch, keys=40))

    with ExitStack() as running:
        load()
        relays = [running.enter_context(RelayThread(settings))]
        wait_for_spread(outbox, [LANES])
        for number, wanted in ((2, [4, 4]), (3, [2, 3, 3]), (4, [2, 2, 2, 2])):
            before = holders(outbox.dsn)
            relays.append(running.enter_context(RelayThread(settings)))
            load()
            wait_for_spread(outbox, wanted)
            now = holders(outbox.dsn)
            newcomer = set(now.values()) - set(before.values())
            moved = {lane for lane in now if now[lane] != before[lane]}
            assert {now[lane] for lane in moved} == newcomer, (
                "a lane moved between two that were there before"
            )
            assert len(moved) == LANES // number
        wait_until(lambda: drained(outbox.dsn), "everything so far")
        before, taken = holders(outbox.dsn), tokens(outbox)
        relays[1].stop.set()
        load()
        wait_for_spread(outbox, [2, 3, 3])
        (gone,) = ended(outbox)
        kept = {lane for lane, holder in before.items() if holder != gone}
        now = holders(outbox.dsn)
        assert {lane: now[lane] for lane in kept} == {lane: before[lane] for lane in kept}
        wait_until(lambda: drained(outbox.dsn), "the rest")
        assert {lane: tokens(outbox)[lane] for lane in kept} == {lane: taken[lane] for lane in kept}
        assert all(relay.error is None for relay in relays)
    assert_exactly_once(outbox, watcher)


def test_a_process_without_lanes_keeps_no_connection_for_any(
    database: str, topic: str, kafka: KafkaServer
) -> None:
    Outbox(database, topic, lanes=1)
    settings = settings_for(database, kafka.bootstrap_servers, lease_s=NEVER_S)
    with RelayThread(settings), RelayThread(settings), RelayThread(settings):
        wait_until(lambda: len(status_of(database).processes) == 3, "three processes")
        wait_until(lambda: list(holders(database)) == [0], "the lane")
        wait_until(
            lambda: (
                query(
                    database,
                    "SELECT count(*) FROM pg_stat_activity"
                    " WHERE application_name LIKE 'publisher lane%%' AND datname = current_database()",
                )
                == [(1,)]
            ),
            "the lane's only connection",
        )


@pytest.mark.guarantee(101)
def test_a_stopped_process_loses_its_lanes_commits_nothing_when_it_wakes_up_and_shares_again(
    outbox: Outbox, kafka: KafkaServer, watcher: Watcher, tmp_path: Path
) -> None:
    settings = settings_for(outbox.dsn, kafka.bootstrap_servers)
    sleeper = publisher_service(settings, tmp_path / "sleeper.log")
    outbox.batch(simple(1, keys=40))
    with sleeper, RelayThread(settings) as awake:
        wait_for_spread(outbox, [4, 4])
        wait_until(lambda: drained(outbox.dsn), sleeper.log)
        sleeper.pause()
        outbox.batch(simple(2, keys=40))
        wait_for_spread(outbox, [LANES])
        wait_until(lambda: drained(outbox.dsn), "the take-over once the leases ran out")
        assert len(status_of(outbox.dsn).processes) == 1
        sleeper.resume()
        for batch in range(3, 8):
            outbox.batch(simple(batch, keys=40))
        wait_for_spread(outbox, [4, 4])
        wait_until(lambda: drained(outbox.dsn), sleeper.log)
        assert awake.error is None
    assert_exactly_once(outbox, watcher)


@pytest.mark.guarantee(101)
def test_a_killed_process_loses_its_lanes_at_once(
    outbox: Outbox, kafka: KafkaServer, watcher: Watcher, tmp_path: Path
) -> None:
    settings = settings_for(outbox.dsn, kafka.bootstrap_servers, lease_s=NEVER_S)
    outbox.batch(simple(1, keys=40))
    with RelayThread(settings), publisher_service(settings, tmp_path / "killed.log") as killed:
        wait_for_spread(outbox, [4, 4])
        killed.kill()
        outbox.batch(simple(2, keys=40))
        wait_for_spread(outbox, [LANES])
        wait_until(lambda: drained(outbox.dsn), "the delivery")
    assert_exactly_once(outbox, watcher)


@pytest.mark.guarantee(101, 176)
def test_a_lane_that_waits_long_keeps_its_lease_while_the_process_lives(
    outbox: Outbox, kafka: KafkaServer, watcher: Watcher, tmp_path: Path
) -> None:
    lease_s = 1.0
    settings = settings_for(outbox.dsn, kafka.bootstrap_servers, lease_s=lease_s)
    plan = FaultPlan(tmp_path / "plan.json")
    with RelayThread(settings), RelayThread(settings):
        wait_for_spread(outbox, [4, 4])
        outbox.batch(simple(1, keys=40))
        wait_until(lambda: drained(outbox.dsn), "the first batch")
        plan.write(Fault("transaction.before_commit", Action.HOLD))
        fault_points.arm(plan.file)
        try:
            outbox.batch(simple(2, keys=40))
            wait_until(lambda: len(plan.fired()) == 1, "a lane that hangs before its commit")
            taken = tokens(outbox)
            began = query(outbox.dsn, "SELECT now()")[0][0]
            wait_until(
                lambda: (
                    query(
                        outbox.dsn,
                        "SELECT bool_and(lease_until > %s + make_interval(secs => %s)) FROM outbox.lane",
                        began,
                        4 * lease_s,
                    )
                    == [(True,)]
                ),
                "leases renewed for longer than they last",
            )
            assert tokens(outbox) == taken
        finally:
            plan.write()
            fault_points.arm(None)
        wait_until(lambda: drained(outbox.dsn), "the rest")
    assert_exactly_once(outbox, watcher)


def test_a_lane_that_stands_still_keeps_its_process_and_continues_by_itself_once_mended(
    outbox: Outbox, kafka: KafkaServer, watcher: Watcher
) -> None:
    settings = settings_for(outbox.dsn, kafka.bootstrap_servers, lease_s=NEVER_S)
    outbox.batch(simple(1, keys=40))
    with RelayThread(settings):
        wait_until(lambda: drained(outbox.dsn), "the first batch")
    (seq,) = query(outbox.dsn, "SELECT seq FROM outbox.lane WHERE lane = 3")[0]
    query(outbox.dsn, "UPDATE outbox.lane SET seq = seq + 5 WHERE lane = 3")
    outbox.batch(simple(2, keys=40))
    with RelayThread(settings) as first, RelayThread(settings) as second:
        wait_until(
            lambda: (
                [lane.stopped_why for lane in status_of(outbox.dsn).lanes if lane.lane == 3] == ["kafka_lost"]
            ),
            "the stop",
        )
        wait_for_spread(outbox, [4, 4])
        wait_until(
            lambda: [lane.lane for lane in status_of(outbox.dsn).lanes if lane.lag_batches] == [3],
            "the others",
        )
        before = holders(outbox.dsn)
        # What `publisher resume` does: the mirror, the token, and a word to the publishers.
        query(
            outbox.dsn, "UPDATE outbox.lane SET seq = %s, lease_token = lease_token + 1 WHERE lane = 3", seq
        )
        query(outbox.dsn, "NOTIFY outbox_publisher")
        wait_until(lambda: drained(outbox.dsn), "the delivery without a restart")
        wait_until(lambda: status_of(outbox.dsn).healthy, "the reason's end")
        assert holders(outbox.dsn) == before
        assert (first.error, second.error) == (None, None)
    assert_exactly_once(outbox, watcher)


@pytest.mark.guarantee(47)
@pytest.mark.faults
def test_processes_that_come_hang_and_are_killed_under_load_lose_and_repeat_nothing(
    outbox: Outbox, kafka: KafkaServer, watcher: Watcher, tmp_path: Path
) -> None:
    seed = time.time_ns()
    print(f"seed {seed}")
    chance = random.Random(seed)
    settings = settings_for(outbox.dsn, kafka.bootstrap_servers, transaction_sessions=13)
    processes = [publisher_service(settings, tmp_path / f"{number}.log") for number in range(4)]
    enough = threading.Event()

    def load() -> None:
        batch = 0
        while not enough.wait(0.05):
            # A slow machine must not be left with more than it can deliver in time.
            if len(outbox.written) - len(watcher.seen) < 3_000:
                batch += 1
                outbox.batch(simple(batch, keys=60))

    with ExitStack() as running:
        for process in processes:
            running.enter_context(process)
        wait_for_spread(outbox, [2, 2, 2, 2])
        loader = threading.Thread(target=load)
        loader.start()
        try:
            for _ in range(5):
                one, other = chance.sample(processes, 2)
                before = len(watcher.seen)
                one.pause()
                other.kill()
                wait_until(lambda before=before: len(watcher.seen) > before + 500, "the survivors' work")  # type: ignore[misc]
                if chance.random() < 0.5:
                    wait_for_spread(outbox, [4, 4])
                one.resume()
                other.start()
                if chance.random() < 0.5:
                    wait_for_spread(outbox, [2, 2, 2, 2])
        finally:
            enough.set()
            loader.join()
        wait_until(lambda: drained(outbox.dsn), lambda: "\n".join(process.log() for process in processes))
        wait_for_spread(outbox, [2, 2, 2, 2])
        for process in processes:
            process.send_signal(signal.SIGTERM)
        assert [process.wait() for process in processes] == [0, 0, 0, 0]
    assert query(outbox.dsn, "SELECT lane FROM outbox.lane WHERE lease_holder IS NOT NULL") == []
    assert_exactly_once(outbox, watcher)
