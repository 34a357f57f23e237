"""A sink that may write two batches."""

from collections.abc import Callable

import psycopg
import pytest
from psycopg.rows import TupleRow

from tests.support.sink.batches import SinkRun

Connection = psycopg.Connection[TupleRow]


@pytest.fixture
def connection(as_writer: Callable[[], Connection]) -> Connection:
    """As the job connects: with the writer's privileges and no more."""
    return as_writer()


@pytest.fixture
def sink_run(connection: Connection) -> SinkRun:
    sink_run = SinkRun(connection)
    sink_run.plan(0, (0, 0), (100, 50))
    sink_run.plan(1, (100, 50), (200, 90))
    return sink_run
