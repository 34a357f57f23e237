"""An outbox that a job was stopped on, and what the publisher has delivered of it."""

import pytest

from db.connection import Connection
from spark_job.ledger import savepoints
from spark_job.ledger.assembly_rules import stored_rules
from spark_job.recovery import outbox_behind
from spark_job.recovery.outbox_behind import Delivered
from tests.support.recovery.starts import OUTPUT, TOMBSTONES, leave, settings
from tests.support.sink.batches import SinkRun, session, still_open


@pytest.fixture(autouse=True)
def delivered(monkeypatch: pytest.MonkeyPatch) -> list[Delivered]:
    """What the publisher's records say."""
    found: list[Delivered] = []
    monkeypatch.setattr(outbox_behind, "newest_delivered", lambda _settings, _uuid: found)
    return found


@pytest.fixture
def sink_run(connection: Connection) -> SinkRun:
    """Two batches of a job that was stopped. It has read to 100 and 50; two sessions are open in partition 0."""
    sink_run = SinkRun(connection, assembly=stored_rules(settings()))
    sink_run.plan(0, (0, 0), (70, 50))
    sink_run.write(0, session("a", 0, 9, OUTPUT), still_open(0, 40))
    savepoints.create(connection, "monday")
    sink_run.plan(1, (70, 50), (100, 50))
    sink_run.write(1, session("b", 71, 79, OUTPUT), still_open(0, 40, 60, tombstones=TOMBSTONES))
    leave(sink_run)
    return sink_run
