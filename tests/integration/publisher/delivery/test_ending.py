"""An orderly end is bounded: it does not wait for a Kafka that is away, and what it leaves in doubt costs nothing."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from devstack.kafka import Kafka
from devstack.topics import create_topics
from service.lifecycle.fault_points import Action, Fault, FaultPlan
from tests.support.outbox.batches import Outbox, simple
from tests.support.outbox.deliveries import assert_exactly_once, drained
from tests.support.processes.publishers import publisher_service, settings_for
from tests.support.queries import query
from tests.support.waiting import DEADLINE_S, wait_until
from tests.support.watching import Watcher


@pytest.fixture
def own_kafka(own_kafka: Kafka) -> Iterator[Kafka]:
    """A broker that this test may stop."""
    yield own_kafka
    own_kafka.resume()


@pytest.mark.guarantee(121)
@pytest.mark.faults
@pytest.mark.parametrize("point", ["transaction.before_commit", "delivery.after_lease"])
def test_a_stop_does_not_wait_for_a_kafka_that_answers_nothing(
    database: str, own_kafka: Kafka, topic_prefix: str, tmp_path: Path, point: str
) -> None:
    topic = f"{topic_prefix}events"
    create_topics(own_kafka.bootstrap_servers, {topic: (3, {})})
    outbox = Outbox(database, topic, lanes=1)
    # Far longer than the test waits: only the bound on the end can end it.
    settings = settings_for(database, own_kafka.bootstrap_servers, transaction_timeout_ms=900_000)
    plan = FaultPlan(tmp_path / "plan.json")
    plan.write(Fault(point, Action.HOLD, 1))
    process = publisher_service(
        settings, tmp_path / "publisher.log", {"OUTBOX_TESTING__FAULT_FILE": str(plan.file)}
    )
    outbox.batch(simple(1, keys=20))
    with Watcher(own_kafka.bootstrap_servers, topic, tolerant=True) as watcher:
        with process:
            wait_until(lambda: len(plan.fired()) == 1, process.log)
            own_kafka.pause()
            plan.write()
            process.send_signal(signal.SIGTERM)
            assert process.wait() == 0, process.log()
        assert query(database, "SELECT lane FROM outbox.lane WHERE lease_holder IS NOT NULL") == []
        own_kafka.resume()
        with publisher_service(settings, tmp_path / "next.log") as successor:
            wait_until(lambda: drained(database), successor.log)
        assert_exactly_once(outbox, watcher)


@pytest.mark.guarantee(121)
def test_an_end_that_hangs_where_nobody_thought_of_is_forced() -> None:
    hangs = (
        "import threading\n"
        "from service.lifecycle.shutdown import stop_on_signals\n"
        "with stop_on_signals(threading.Event(), longest_end_s=0.1):\n"
        "    print('ready', flush=True)\n"
        "    threading.Event().wait()\n"
    )
    with subprocess.Popen([sys.executable, "-c", hangs], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            process.send_signal(signal.SIGTERM)
            assert process.wait(DEADLINE_S) == 128 + signal.SIGTERM
        finally:
            process.kill()
