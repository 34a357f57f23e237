"""A producer that is discarded in the middle of a transaction does not end the process."""

import subprocess
import sys

# librdkafka's own threads run behind all others on their CPU, so that they are late.
_MOCK = """
import ctypes, os, time
from contextlib import suppress
from pathlib import Path
from confluent_kafka import Producer, cimpl
from publisher.kafka.clients import discard_producer, lane_producer
from service.settings import KafkaSettings

def threads(name):
    found = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            if (task / "comm").read_text().startswith(name):
                found.add(int(task.name))
    return found

def delay(threads):
    for thread in threads:
        os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))

cluster = Producer({"bootstrap.servers": "mock:1", "test.mock.num.brokers": 1, "log_level": 0})
(broker,) = cluster.list_topics("out", timeout=30).brokers.values()
settings = KafkaSettings(bootstrap_servers=f"{broker.host}:{broker.port}")
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
"""

# It registers a partition one millisecond after the first record: the coordinator's thread fails the request before it is counted.
_REGISTERING = """
for _ in range(20):
    others = threads("rdk:main")
    producer = lane_producer(settings, "lane", 60_000, None)
    producer.init_transactions(30)
    producer.list_topics("out", timeout=30)
    producer.begin_transaction()
    producer.poll(0.05)
    delay(threads("rdk:main") - others)
    producer.produce("out", b"value", partition=0)
    registered_at = time.monotonic() + 0.0012
    discard_producer(producer)
    while time.monotonic() < registered_at:
        pass
    del producer
print("alive")
"""

# Its broker takes a record and does not answer any more.
_IN_FLIGHT = """
client = ctypes.CDLL(cimpl.__file__)
client.rd_kafka_handle_mock_cluster.restype = ctypes.c_void_p
handle = ctypes.c_void_p.from_address(id(cluster) + object.__basicsize__)
mock = ctypes.c_void_p(client.rd_kafka_handle_mock_cluster(handle))
others = threads("rdk:broker")
producer = lane_producer(settings, "lane", 60_000, None)
producer.init_transactions(30)
producer.begin_transaction()
producer.produce("out", b"value", partition=0)
producer.flush(30)
client.rd_kafka_mock_broker_set_rtt(mock, ctypes.c_int32(broker.id), ctypes.c_int(60_000))
reports = []
producer.produce("out", b"value", partition=0, on_delivery=lambda error, _: reports.append(error.name()))
producer.flush(1)
delay(threads("rdk:broker") - others)
discard_producer(producer)
producer.poll(0)
print(*reports)
"""


def test_a_producer_is_discarded_as_it_registers_its_first_partition() -> None:
    assert _printed(_REGISTERING) == "alive\n"


def test_no_answer_to_a_discarded_producer_is_handled_later() -> None:
    # As a fenced producer's, which would end the process: each record in flight was given up before the discarding has returned.
    assert _printed(_IN_FLIGHT) == "_PURGE_INFLIGHT\n"


def _printed(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", _MOCK + program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout
