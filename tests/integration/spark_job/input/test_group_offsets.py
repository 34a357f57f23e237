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
from service.kafka.topics import existing_topics
from service.settings import KafkaSettings
from spark_job.input.group_offsets import GroupOffsets
from tests.support.waiting import wait_until

ROUNDS = 3


def show(bootstrap_servers: str, asks: "multiprocessing.Queue[tuple[str, int] | None]") -> None:
    """Show the offset that each group is given, until None. librdkafka asks who coordinates a group that it does not know."""
    structlog.configure(processors=[structlog.testing.LogCapture()])
    admin = admin_client(KafkaSettings(bootstrap_servers=bootstrap_servers))
    existing_topics(admin, ["t"], 30)
    groups: dict[str, GroupOffsets] = {}
    while (asked := asks.get()) is not None:
        group, offset = asked
        groups.setdefault(group, GroupOffsets(admin, group, 0.5)).show([TopicPartition("t", 0, offset)])
    for each in groups.values():
        each.close()
    admin.close()


def test_a_coordinator_that_answers_too_late_ends_no_process(own_kafka: Kafka) -> None:
    create_topics(own_kafka.bootstrap_servers, {"t": (1, {})})
    broker = Broker(KafkaSettings(bootstrap_servers=own_kafka.bootstrap_servers))
    context = multiprocessing.get_context("spawn")
    asks: multiprocessing.Queue[tuple[str, int] | None] = context.Queue()
    process = context.Process(target=show, args=(own_kafka.bootstrap_servers, asks))
    process.start()

    def is_there(group: str, offset: int) -> bool:
        asks.put((group, offset))
        assert process.exitcode is None
        return [each.next_offset for each in broker.group_positions(group, ["t"])] == [offset]

    try:
        wait_until(lambda: is_there("first", 1), "the first offsets", poll_s=0.5)
        for number in range(ROUNDS):
            group = f"group-{number}"
            own_kafka.pause()
            try:
                asks.put((group, 10))
                time.sleep(1.5)  # longer than the request may take
            finally:
                own_kafka.resume()
            wait_until(partial(is_there, group, 20), "newer ones", poll_s=0.5)
        asks.put(None)
        process.join(30)
        assert process.exitcode == 0
    finally:
        process.kill()
