"""Whether a lane is stopped has one answer, in every place that tells it. Needs no Kafka."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest

from db.statements import queries
from publisher.commands import status
from publisher.console.flow import read_flow
from publisher.outbox.lease import Lease
from publisher.protocol.stop_reasons import StopReason
from publisher.retention.plan import LaneProgress, Needs, Partition, needed_by
from publisher.status.outbox_metrics import PublisherOutboxMetrics
from publisher.status.publisher_status import read_status
from service.settings import Settings
from tests.support.outbox.audits import examples, run_audit
from tests.support.outbox.batches import Outbox, Session
from tests.support.processes.publishers import settings_for

_LANES = queries("publisher", "lanes")
_NEEDS = queries("publisher.retention", "needs")
_RESUMES = queries("publisher", "resumes")

Shown = tuple[str | None, StopReason | None, bool]
"""Explanation, reason, and whether the lane runs."""
STOPPED: Shown = ("kafka_lost: gone", StopReason.KAFKA_LOST, False)
STOPPED_UNTIL_MENDED: Shown = ("output_topic_missing: out", StopReason.OUTPUT_TOPIC_MISSING, False)
RETRYING: Shown = ("retrying: Kafka: timed out", None, False)
SMALLER: Shown = ("retrying: transactions are held to 5 rows", None, True)
RUNS: Shown = (None, None, True)


class Held(NamedTuple):
    """A lane with one row to deliver, its lease, and the connection of its holder."""

    connection: psycopg.Connection[Any]
    lease: Lease
    settings: Settings

    def show(self, explanation: str | None, reason: StopReason | None, runs: bool) -> None:
        """Write what a worker shows."""
        shown = {"explanation": explanation, "reason": reason, "runs": runs}
        self.connection.execute(_LANES["set_stopped"], self.lease.parameters | shown)

    def interrupt_resume(self) -> None:
        """Leave what a killed `publisher resume` leaves."""
        mark = {"reason": "resuming: to batch 1"}
        assert self.connection.execute(_RESUMES["mark_lane"], self.lease.parameters | mark).rowcount == 1

    def shown(self) -> tuple[Any, ...] | None:
        """The lane's row."""
        return self.connection.execute("SELECT stopped_reason, stopped_why FROM outbox.lane").fetchone()


@pytest.fixture
def held(database: str) -> Iterator[Held]:
    """One lane, which this process holds."""
    outbox = Outbox(database, "out", lanes=1)
    outbox.batch({"k": [Session([b"{}"], 9)]})
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("INSERT INTO outbox.lane (epoch, lane) VALUES (1, 0)")
        lease = Lease.claim(connection, 1, 0, "holder", 60.0)
        assert lease is not None
        yield Held(connection, lease, settings_for(database, "127.0.0.1:1"))


def answers(held: Held, folder: Path) -> dict[str, bool]:
    """Whether each reader says that the lane is stopped."""
    connection = held.connection
    found = read_status(connection)
    polled = PublisherOutboxMetrics(90.0)
    polled.poll(connection)
    flow = read_flow(connection, held.settings, list)
    lanes = [LaneProgress(*row) for row in connection.execute(_NEEDS["lanes"])]
    needs = needed_by(Partition("p", 0, 10, 1, None, None), Needs(1, lanes))
    undelivered = connection.execute("SELECT publisher FROM outbox.audit_undelivered").fetchone()
    resumed = connection.execute(_RESUMES["lane"], {"epoch": 1, "lane": 0}).fetchone()
    assert undelivered is not None
    assert resumed is not None
    report = run_audit(held.settings, folder)
    return {
        "status": not found.healthy,
        "status, state": str(status._state(found.lanes[0])) == "stopped",
        "metric": any(f.samples for f in polled.collect() if f.name == "outbox_lane_stopped"),
        "flow": flow["lag"]["stopped"] == 1,
        "finding": any("is stopped" in each.text for each in flow["findings"]),
        "retention": "stopped: " in needs[0],
        "audit": "stopped: " in examples(report, "undelivered"),
        "view": undelivered[0] == "stopped",
        "resume": resumed[6],
    }


@pytest.mark.parametrize("resuming", [False, True], ids=["", "resuming"])
@pytest.mark.parametrize(
    ("shown", "stopped"),
    [
        (STOPPED, True),
        (STOPPED_UNTIL_MENDED, True),
        (RETRYING, False),
        (SMALLER, False),
        (RUNS, False),
    ],
)
def test_every_reader_says_the_same(
    held: Held, tmp_path: Path, shown: Shown, *, stopped: bool, resuming: bool
) -> None:
    if resuming:
        held.interrupt_resume()
    held.show(*shown)
    # Until the lane runs, a resume that was interrupted stops it.
    stopped |= resuming and not shown[2]
    found = answers(held, tmp_path)
    assert found == dict.fromkeys(found, stopped)


def test_the_reason_begins_with_its_word_also_after_an_interrupted_resume(held: Held) -> None:
    held.interrupt_resume()
    for _ in range(2):
        held.show(*RETRYING)
        assert held.shown() == ("resuming: retrying: Kafka: timed out", "resuming")
    held.show(*STOPPED)
    assert held.shown() == ("resuming: kafka_lost: gone", "resuming")
    held.show(*RUNS)
    assert held.shown() == (None, None)
    held.show(*STOPPED)
    assert held.shown() == STOPPED[:2]
