"""A broker that answers after a request for a group's offsets was given up costs the job a warning, and not its process."""

import multiprocessing
import time
from functools import partial

import structlog
from confluent_kafka import TopicPartition

from devstack.kafka import Kafka
from devstack.topics import create_topics
from publisher.audit.readback.topics import Broker
from service.kafka.client import admin_client
from service.settings import KafkaSettings
from spark_job.input.group_offsets import GroupOffsets
from tests.support.waiting import wait_until

GROUP = "shown"
ROUNDS = 3


def show(bootstrap_servers: str, asks: "multiprocessing.Queue[int | None]") -> None:
    """Show the offsets that it is given, until None."""
    structlog.configure(processors=[structlog.testing.LogCapture()])
    admin = admin_client(KafkaSettings(bootstrap_servers=bootstrap_servers))
    offsets = GroupOffsets(admin, GROUP, 0.5)
    while (offset := asks.get()) is not None:
        offsets.show([TopicPartition("t", 0, offset)])
    offsets.close()
    admin.close()


def test_a_coordinator_that_answers_too_late_ends_no_process(own_kafka: Kafka) -> None:
    create_topics(own_kafka.bootstrap_servers, {"t": (1, {})})
    broker = Broker(KafkaSettings(bootstrap_servers=own_kafka.bootstrap_servers))

    def shown() -> int:
        return max((each.next_offset for each in broker.group_positions(GROUP, ["t"])), default=-1)

    context = multiprocessing.get_context("spawn")
    asks: multiprocessing.Queue[int | None] = context.Queue()
    process = context.Process(target=show, args=(own_kafka.bootstrap_servers, asks))
    process.start()

    def is_there(offset: int) -> bool:
        asks.put(offset)
        assert process.exitcode is None
        return shown() == offset

    try:
        for number in range(1, ROUNDS + 1):
            offset = 10 * number
            wait_until(partial(is_there, offset), "the offsets", poll_s=0.5)
            own_kafka.pause()
            try:
                asks.put(offset + 1)
                time.sleep(1.5)  # longer than the request may take
            finally:
                own_kafka.resume()
            wait_until(partial(is_there, offset + 2), "newer ones", poll_s=0.5)
        asks.put(None)
        process.join(30)
        assert process.exitcode == 0
    finally:
        process.kill()
