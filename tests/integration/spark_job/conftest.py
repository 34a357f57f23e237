"""Connections for the tests of the job's part of the outbox."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import psycopg
import pytest

from db.connection import Connection


@pytest.fixture
def as_writer(database: str) -> Iterator[Callable[[], Connection]]:
    """Opens connections with the writer's privileges and no more."""
    with ExitStack() as cleanup:
        yield lambda: cleanup.enter_context(
            psycopg.connect(database, autocommit=True, options="-c role=outbox_writer")
        )


@pytest.fixture
def connection(as_writer: Callable[[], Connection]) -> Connection:
    """The connection of a job, or of a command: with the writer's privileges and no more."""
    return as_writer()
