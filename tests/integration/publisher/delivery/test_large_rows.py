"""Rows larger than `transaction_bytes`: delivered as all others, and what a process needs for them has a bound."""

import os
from pathlib import Path

import pytest

from devstack.kafka import KafkaServer
from devstack.topics import create_topics
from tests.support.outbox.batches import Outbox, Session
from tests.support.outbox.deliveries import assert_exactly_once, drained, reasons
from tests.support.processes.publishers import (
    EIGHT_LANES_BYTES,
    RelayThread,
    publisher_service,
    settings_for,
)
from tests.support.waiting import wait_until
from tests.support.watching import Watcher

LANES = 8


def test_large_rows_among_small_ones_arrive_once_and_in_order(
    database: str, kafka: KafkaServer, topic: str, watcher: Watcher
) -> None:
    outbox = Outbox(database, topic, lanes=LANES)
    for batch in range(6):
        sizes = [100, 200_000 if batch % 3 else 100, 100, 40_000]
        outbox.batch(
            {
                f"{lane}-{place}": [Session([os.urandom(size // 4)] * 4, batch * 100 + lane * 4 + place + 1)]
                for lane in range(LANES)
                for place, size in enumerate(sizes)
            }
        )
    with RelayThread(settings_for(database, kafka.bootstrap_servers, transaction_bytes=65_536)):
        wait_until(lambda: drained(database), lambda: f"the delivery of everything: {reasons(database)}")
        assert_exactly_once(outbox, watcher)


@pytest.mark.parametrize(("megabytes", "batches"), [pytest.param(59, 1, marks=pytest.mark.faults), (15, 3)])
def test_eight_lanes_with_large_rows_need_no_more_memory_than_the_documents_say(
    database: str, kafka: KafkaServer, topic_prefix: str, tmp_path: Path, megabytes: int, batches: int
) -> None:
    topic = f"{topic_prefix}events"
    create_topics(kafka.bootstrap_servers, {topic: (3, {"max.message.bytes": "2000000"})})
    outbox = Outbox(database, topic, lanes=LANES)
    # Stored in a fifth of their bytes.
    values = [b"".join(os.urandom(50) * 5 for _ in range(4_000)) for _ in range(megabytes)]
    keys = [chr(ord("a") + lane) for lane in range(LANES)]
    assert {outbox.lane_of(key) for key in keys} == set(range(LANES))
    for batch in range(batches):
        outbox.batch({key: [Session(values, batch * LANES + n + 1)] for n, key in enumerate(keys)})
        outbox.written.clear()  # hundreds of megabytes of this process
    with publisher_service(settings_for(database, kafka.bootstrap_servers), tmp_path / "log") as process:
        wait_until(lambda: drained(database), process.tail, 300)
        status = Path(f"/proc/{process.pid}/status").read_text("ascii").splitlines()
    [peak] = [line.split()[1] for line in status if line.startswith("VmHWM:")]
    assert int(peak) << 10 < EIGHT_LANES_BYTES
