"""The number of lanes changes while everything runs, and each session key keeps its order."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from devstack.kafka import KafkaServer
from publisher.cli import app
from service.errors import OutboxError
from service.settings import Settings
from tests.support.outbox.batches import Outbox, simple
from tests.support.outbox.deliveries import assert_exactly_once, drained, status_of
from tests.support.processes.publishers import RelayThread, publisher_service, settings_for
from tests.support.queries import query
from tests.support.waiting import wait_until
from tests.support.watching import Watcher


def lanes(outbox: Outbox, kafka: KafkaServer, *arguments: str, lock_timeout_ms: int = 90_000) -> Any:
    """What `publisher lanes ... --json` prints. Raises what the command raises."""
    environment = {
        "OUTBOX_POSTGRES__DSN": outbox.dsn,
        "OUTBOX_POSTGRES__LOCK_TIMEOUT_MS": str(lock_timeout_ms),
        "OUTBOX_KAFKA__BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
    }
    result = CliRunner(env=environment).invoke(
        app, ["lanes", *arguments, *(["--yes"] if arguments else []), "--json"]
    )
    if result.exception is not None:
        raise result.exception
    # Relays in threads of this process log to the same place.
    found, _ = json.JSONDecoder().raw_decode(result.stdout, result.stdout.index("{\n"))
    return found


def lanes_held(outbox: Outbox, kafka: KafkaServer) -> list[int]:
    """How many lanes each living process holds, fewest first."""
    return sorted(len(process["lanes"]) for process in lanes(outbox, kafka)["processes"])


@contextmanager
def load(outbox: Outbox) -> Iterator[None]:
    """Batch after batch meanwhile, of the same keys."""
    enough = threading.Event()

    def write() -> None:
        batch = 0
        while not enough.wait(0.03):
            batch += 1
            outbox.batch(simple(batch, keys=50))

    thread = threading.Thread(target=write)
    thread.start()
    try:
        wait_until(lambda: len(outbox.written) > 0, "the first batch")
        yield
    finally:
        enough.set()
        thread.join()


def batches_in(outbox: Outbox, epoch: int) -> int:
    """How many batches an epoch has so far."""
    (count,) = query(
        outbox.dsn,
        "SELECT count(*) FROM outbox.batch WHERE batch_id >= (SELECT from_batch FROM outbox.lane_epoch WHERE epoch = %s)",
        epoch,
    )[0]
    return int(count)


def assert_epochs_follow_each_other(outbox: Outbox) -> None:
    """No transaction of an epoch was recorded before the last one of the epoch before, in whatever process."""
    order = query(outbox.dsn, "SELECT epoch FROM outbox.delivery ORDER BY committed_at, epoch")
    assert order == sorted(order)


@pytest.mark.guarantee(48)
def test_more_and_fewer_lanes_under_load_keep_the_order_of_each_key(
    outbox: Outbox, kafka: KafkaServer, watcher: Watcher
) -> None:
    settings = settings_for(outbox.dsn, kafka.bootstrap_servers, transaction_sessions=20)
    with RelayThread(settings) as first, RelayThread(settings) as second:
        with load(outbox):
            changed = lanes(outbox, kafka, "set", "7")
            assert (changed["epoch"], changed["lanes"], changed["before"]) == (2, 7, 2)
            wait_until(lambda: batches_in(outbox, 2) > 5, "batches with seven lanes")
            assert lanes(outbox, kafka, "set", "3")["epoch"] == 3
            wait_until(lambda: batches_in(outbox, 3) > 5, "batches with three lanes")
        wait_until(
            lambda: drained(outbox.dsn) and {lane.epoch for lane in status_of(outbox.dsn).lanes} == {3},
            "the end",
        )
        shown = lanes(outbox, kafka)
        assert [(epoch["lanes"], epoch["state"]) for epoch in shown["epochs"]] == [
            (2, "ended"),
            (7, "ended"),
            (3, "current"),
        ]
        wait_until(lambda: lanes_held(outbox, kafka) == [1, 2], "lanes shared by both processes")
        assert (first.error, second.error) == (None, None)
    assert query(outbox.dsn, "SELECT epoch, lane FROM outbox.lane WHERE lease_holder IS NOT NULL") == []
    assert_exactly_once(outbox, watcher)
    assert_epochs_follow_each_other(outbox)


@pytest.mark.guarantee(48)
@pytest.mark.faults
def test_a_kill_during_a_change_keeps_the_order_of_each_key(
    outbox: Outbox, kafka: KafkaServer, watcher: Watcher, tmp_path: Path
) -> None:
    settings = settings_for(outbox.dsn, kafka.bootstrap_servers, transaction_sessions=7)
    processes = [publisher_service(settings, tmp_path / f"{number}.log") for number in range(3)]
    with processes[0], processes[1], processes[2], load(outbox):
        epoch = 1
        for number, count in enumerate((9, 4, 1, 6, 2, 8)):
            epoch += 1
            before = len(watcher.seen)
            wait_until(lambda epoch=epoch: batches_in(outbox, epoch - 1) > 3, "some batches")  # type: ignore[misc]
            lanes(outbox, kafka, "set", str(count))
            killed = processes[number % 3]
            killed.kill()
            wait_until(lambda before=before: len(watcher.seen) > before, "the others' work")  # type: ignore[misc]
            killed.start()
        wait_until(lambda: batches_in(outbox, epoch) > 3, "some batches")
    with processes[0]:
        wait_until(
            lambda: drained(outbox.dsn) and {lane.epoch for lane in status_of(outbox.dsn).lanes} == {epoch},
            processes[0].log,
        )
    assert_exactly_once(outbox, watcher)
    assert_epochs_follow_each_other(outbox)


def test_a_change_that_is_none_or_cannot_be_is_explained(outbox: Outbox, kafka: KafkaServer) -> None:
    with pytest.raises(OutboxError, match=r"no batch was committed since .* to 2: .* Try again when the job"):
        lanes(outbox, kafka, "set", "4")
    outbox.batch(simple(1, keys=4))
    assert lanes(outbox, kafka, "set", "2") == {"lanes": 2, "changed": False}
    with psycopg.connect(outbox.dsn) as job:
        job.execute("SELECT outbox.lock_writer()")
        with pytest.raises(OutboxError, match="has held the writer lock for longer than"):
            lanes(outbox, kafka, "set", "4", lock_timeout_ms=100)
    assert lanes(outbox, kafka, "set", "4") == {
        "epoch": 2,
        "from_batch": 2,
        "lanes": 4,
        "before": 2,
        "changed": True,
    }
    query(outbox.dsn, "DELETE FROM outbox.lane_epoch")
    with pytest.raises(OutboxError, match="the job makes the first ones when it starts"):
        lanes(outbox, kafka, "set", "4")


def test_the_publisher_s_role_may_change_the_lanes(outbox: Outbox) -> None:
    outbox.batch(simple(1, keys=4))
    with psycopg.connect(outbox.dsn, autocommit=True) as connection:
        connection.execute("SET ROLE outbox_publisher")
        assert connection.execute("SELECT * FROM outbox.change_lanes(5)").fetchall() == [(2, 2)]


@pytest.mark.guarantee(102)
@pytest.mark.parametrize("lane", [2, 5, 900])
def test_a_row_for_a_lane_that_its_epoch_does_not_have_stops_the_first_lane(
    outbox: Outbox, settings: Settings, lane: int
) -> None:
    outbox.batch(simple(1, keys=4))
    # Rows of an earlier epoch with more lanes are no strays.
    outbox.add_epoch(2, 2, 6)
    outbox.batch(simple(2, keys=30))
    outbox.add_epoch(3, 3, 2)
    outbox.batch(simple(3, keys=4))
    with RelayThread(settings):
        wait_until(lambda: batches_in(outbox, 3) == 1 and drained(outbox.dsn), "three epochs")
        wait_until(lambda: {found.epoch for found in status_of(outbox.dsn).lanes} == {3}, "three epochs")
    outbox.batch(simple(4, keys=4))
    query(
        outbox.dsn,
        "UPDATE outbox.session_output SET lane = %s WHERE batch_id = 4 AND session_key = 'k0002'",
        lane,
    )
    with RelayThread(settings):
        wait_until(
            lambda: any(found.stopped_why == "no_such_lane" for found in status_of(outbox.dsn).lanes),
            "the stop",
        )
        reason = next(found.stopped_reason for found in status_of(outbox.dsn).lanes if found.lane == 0)
        assert f"a row of batch 4 is for lane {lane}" in (reason or "")
        assert "k0002" not in (reason or "")  # it is in logs and on /readyz
        assert [found.cursor_batch for found in status_of(outbox.dsn).lanes if found.lane == 0] == [3]
        query(outbox.dsn, "UPDATE outbox.session_output SET lane = 0 WHERE batch_id = 4 AND lane = %s", lane)
        query(outbox.dsn, "NOTIFY outbox_publisher")
        wait_until(lambda: drained(outbox.dsn), "the delivery once the row had a lane")
