"""A sink that may write two batches."""

import pytest

from db.connection import Connection
from tests.support.sink.batches import SinkRun


@pytest.fixture
def sink_run(connection: Connection) -> SinkRun:
    sink_run = SinkRun(connection)
    sink_run.plan(0, (0, 0), (100, 50))
    sink_run.plan(1, (100, 50), (200, 90))
    return sink_run
