"""A producer that is discarded just as librdkafka registers its first partition does not end the process."""

import subprocess
import sys

# librdkafka's main thread runs behind all others on its CPU: the coordinator's thread fails a request before it is counted.
# It registers a partition one millisecond after the first record.
_PROGRAM = """
import os, time
from pathlib import Path
from confluent_kafka import Producer
from publisher.kafka.clients import discard_producer, lane_producer
from service.settings import KafkaSettings

def main_threads():
    tasks = Path("/proc/self/task").iterdir()
    return {int(task.name) for task in tasks if (task / "comm").read_text().startswith("rdk:main")}

cluster = Producer({"bootstrap.servers": "mock:1", "test.mock.num.brokers": 1, "log_level": 0})
(broker,) = cluster.list_topics("out", timeout=30).brokers.values()
settings = KafkaSettings(bootstrap_servers=f"{broker.host}:{broker.port}")
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
for _ in range(20):
    others = main_threads()
    producer = lane_producer(settings, "lane", 60_000, None)
    producer.init_transactions(30)
    producer.list_topics("out", timeout=30)
    producer.begin_transaction()
    producer.poll(0.05)
    for thread in main_threads() - others:
        os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))
    producer.produce("out", b"value", partition=0)
    registered_at = time.monotonic() + 0.0012
    discard_producer(producer)
    while time.monotonic() < registered_at:
        pass
    del producer
print("alive")
"""


def test_a_producer_is_discarded_as_it_registers_its_first_partition() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr
