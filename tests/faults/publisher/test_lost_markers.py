"""A broker that loses the end of a transaction (KAFKA-20734) costs time and a command by hand, no event and no repetition.

Kafka 4.3.0 to 4.4.0 do so when a killed broker is back before its session has run out: it still takes itself for the leader, aborts a
transaction that timed out meanwhile, is fenced before it can tell its partitions, and takes leaderless partitions for deleted ones. Without
the publisher's check, the lane's next commit brings the aborted events back, or the lane waits for its own progress for ever.
"""

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from devstack.kafka import Kafka
from publisher.protocol.stop_reasons import StopReason
from service.lifecycle.fault_points import Action, Fault
from spark_job.spark.jars import java_executable, resolve
from tests.support.faults.matrix import Matrix
from tests.support.faults.publisher_cells import PublisherCell, run_cells
from tests.support.faults.publisher_scenario import PublisherScenario, SetUp
from tests.support.outbox.deliveries import drained, status_of
from tests.support.servers.proxied_kafka import HEAP, QUICK

_LOCK = Path(__file__).parent / "kafka-4.3.1.lock"
_TRANSACTION_TIMEOUT_MS = 2_000
_TRIES = 8
_OPEN = re.compile(r"(\S+)\[(\d+)\] from offset (\d+) on")


class ForgetfulKafka(Kafka):
    """A broker with the defect."""

    def jars_lock(self) -> Path:
        """Of its version, whichever the run's broker has."""
        return _LOCK


@pytest.fixture
def forgetful_kafka(tmp_path: Path) -> Iterator[ForgetfulKafka]:
    """Of this test alone. Its session lasts long enough for a slow machine to show the defect."""
    settings = QUICK | {"broker.session.timeout.ms": "20000"}
    server = ForgetfulKafka(tmp_path / "forgetful-kafka", heap=HEAP, settings=settings)
    server.start()
    yield server
    server.destroy()


def _abort(bootstrap: str, topic: str, partition: str, offset: str) -> None:
    """As an operator does it: `kafka-transactions.sh abort`."""
    tool = [
        java_executable(), "-cp", ":".join(map(str, resolve(_LOCK))), "org.apache.kafka.tools.TransactionsCommand",
        "--bootstrap-server", bootstrap, "abort", "--topic", topic, "--partition", partition, "--start-offset", offset,
    ]  # fmt: skip
    subprocess.run(tool, check=True, capture_output=True, timeout=60)


def _cell(kafka: ForgetfulKafka, point: str, hit: int, detail: str) -> PublisherCell:
    def strike(scenario: PublisherScenario) -> str:
        scenario.meet(Fault(point, Action.HOLD, hit), batches=3)
        # What was produced so far is in the broker: that is what the defect leaves open.
        scenario.wait_until(scenario.open_transactions, "an open transaction in the broker")
        kafka.kill()
        kafka.start()
        scenario.release()
        return "the broker says that the transaction was aborted"

    def recover(scenario: PublisherScenario) -> str:
        for _ in range(_TRIES):
            before = scenario.transactions()
            if told := _end_by_hand(scenario):
                scenario.recover()
                more = scenario.transactions() - before
                return f"{len(told)} partitions told by hand, {more} transactions more, {len(scenario.watcher.seen)} events once"
            # The broker was quick enough to end the transaction everywhere.
            scenario.recover()
            strike(scenario)
        raise AssertionError(f"the broker has not lost the end of a transaction in {_TRIES} tries")

    return PublisherCell(
        "a transaction in flight",
        "a broker loses the end of a transaction",
        "SIGKILL",
        strike,
        recover,
        detail=detail,
    )


def _end_by_hand(scenario: PublisherScenario) -> set[tuple[str, str, str]]:
    """End the transaction where the lane says that it is open; return these places. While it waits, the lane sends nothing."""
    before = scenario.transactions()
    told: set[tuple[str, str, str]] = set()
    while reason := _stopped(scenario, told):
        assert scenario.transactions() == before
        for place in set(_OPEN.findall(reason)) - told:
            _abort(scenario.bootstrap, *place)
            told.add(place)
    return told


def _stopped(scenario: PublisherScenario, told: set[tuple[str, str, str]]) -> str:
    """Why the lane stands still beyond what the broker was told of, once it does; nothing once all is delivered."""

    def reason() -> str:
        (lane,) = status_of(scenario.dsn).lanes
        shown = lane.stopped_reason or ""
        return (
            shown
            if lane.stopped_why == StopReason.OPEN_TRANSACTION and set(_OPEN.findall(shown)) - told
            else ""
        )

    scenario.wait_until(lambda: bool(reason()) or drained(scenario.dsn), "delivery")
    return reason()


@pytest.mark.guarantee(31)
@pytest.mark.faults
@pytest.mark.timeout(1_800)
def test_a_broker_that_loses_the_end_of_a_transaction_loses_and_repeats_no_event(
    set_up: SetUp, forgetful_kafka: ForgetfulKafka, matrix: Matrix, tell: Callable[[str], None]
) -> None:
    scenario = set_up(
        bootstrap=forgetful_kafka.bootstrap_servers, transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS, lanes=1
    )
    cells = [
        _cell(forgetful_kafka, "transaction.during_produce", 8, "half of the rows are sent"),
        _cell(
            forgetful_kafka,
            "transaction.before_commit",
            3,
            "all records are in Kafka, the lane's progress too",
        ),
    ]
    run_cells(matrix, "a broker that loses the end of a transaction (Kafka 4.3.1)", cells, scenario, tell)
