"""Consumers as processes that are killed, frozen and started while outputs arrive."""

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.consumer.group import Record, Send
from tests.support.processes.environment import without_settings
from tests.support.queries import query
from tests.support.waiting import wait_until

QUICK = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 500, "max.poll.interval.ms": 8_000}
ROUNDS, EACH = 12, 20


@contextmanager
def program(dsn: str, options: dict[str, Any], topic: str) -> Iterator[subprocess.Popen[str]]:
    """A consumer; what is left of it is killed."""
    servers, group = options["bootstrap.servers"], options["group.id"]
    command = [
        sys.executable,
        "-m",
        "tests.support.consumer.program",
        dsn,
        servers,
        group,
        topic,
        json.dumps(QUICK),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=without_settings()) as process:
        try:
            yield process
        finally:
            process.kill()


def consumed(dsn: str) -> list[tuple[str, int, int]]:
    """(outbox-id, partition, offset) of each effect, in the order in which they were inserted."""
    return query(dsn, "SELECT outbox_id, partition, record_offset FROM effect ORDER BY number")


def output(number: int) -> Record:
    """The one output of a session."""
    return Record(str(number).encode(), f"AAAAAAAAAAAAAAAAAAAAAA/0/{number}/0")


def assert_once_and_in_order(dsn: str, count: int) -> None:
    """Each output of 0 to `count` - 1 has one effect, and those of a partition are in its order."""
    wait_until(
        lambda: len(consumed(dsn)) >= count, lambda: f"{count} effects, have {len(consumed(dsn))}", 180
    )
    found = consumed(dsn)
    assert sorted(each for each, _, _ in found) == sorted(
        f"AAAAAAAAAAAAAAAAAAAAAA/0/{n}/0" for n in range(count)
    )
    for partition in (0, 1):
        offsets = [offset for _, of, offset in found if of == partition]
        assert offsets == sorted(offsets)


def wait_for_some(dsn: str, more: int, written: int) -> None:
    """Wait for so many more effects, or for all."""
    wanted = min(len(consumed(dsn)) + more, written)
    wait_until(lambda: len(consumed(dsn)) >= wanted, f"{wanted} effects", 120)


def test_kill_9_again_and_again_repeats_and_loses_nothing(
    own_database: str, topic: str, options: dict[str, Any], send: Send
) -> None:
    chance = random.Random(7)
    written = 0
    for _ in range(ROUNDS):
        with program(own_database, options, topic):
            for partition in (0, 1):
                numbers = range(written, written + EACH)
                written += EACH
                # Of the former round some come again.
                again = [output(n) for n in range(max(0, written - 3 * EACH), written - 2 * EACH, 5)]
                send(partition, [*(output(n) for n in numbers), *again])
            wait_for_some(own_database, chance.randrange(1, EACH), written)
    with program(own_database, options, topic), program(own_database, options, topic):
        assert_once_and_in_order(own_database, written)


def test_a_process_that_freezes_in_its_transaction_is_replaced_and_changes_nothing_when_it_wakes(
    own_database: str, topic: str, options: dict[str, Any], send: Send
) -> None:
    send(0, [output(0), Record(b"slow", "AAAAAAAAAAAAAAAAAAAAAA/0/1/0")])
    with program(own_database, options, topic) as frozen:
        assert frozen.stdout is not None
        # In its transaction, which holds the position's row.
        assert frozen.stdout.readline() == "slow\n"
        os.kill(frozen.pid, signal.SIGSTOP)
        send(0, [output(n) for n in range(2, 20)])
        with program(own_database, options, topic):
            wait_until(lambda: len(consumed(own_database)) >= 20, "the successor's effects", 180)
            os.kill(frozen.pid, signal.SIGCONT)
            # Postgres has ended its transaction, and with it the connection.
            assert frozen.wait(120) != 0
            send(0, [output(n) for n in range(20, 30)])
            assert_once_and_in_order(own_database, 30)
