"""What a lane looks at before it records, and before it believes a connection."""

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest

from publisher.checks import LaneStoppedError
from publisher.open_lane import Outcome
from publisher.progress import Totals
from tests.unit.publisher.test_checks import RECORD
from tests.unit.publisher.test_link import opened

LEASE: Any = SimpleNamespace(parameters={"epoch": 1, "lane": 0, "lease_token": 1, "lease_s": 3.0})


class Counting:
    """A connection to a database that knows so many parked rows up to the cursor."""

    def __init__(self, parked: int) -> None:
        self._parked = parked
        self.recorded = False

    def execute(self, sql: Any, _parameters: object) -> Any:
        text = sql if isinstance(sql, str) else str(sql)
        self.recorded = self.recorded or "INSERT INTO outbox.delivery" in text
        return SimpleNamespace(rowcount=1, fetchone=lambda: (self._parked,))


@pytest.mark.parametrize(("known", "records"), [(2, True), (3, True), (1, False)])
def test_a_resume_that_postgres_does_not_know_stands_only_with_the_rows_that_it_left_parked(
    known: int, records: bool
) -> None:
    resumed = replace(RECORD, resumed="--from kafka", total=Totals(10, 200, 2))
    connection = Counting(known)
    lane = opened(Outcome.IDLE, breaks=False)
    stops = pytest.raises(LaneStoppedError, match=r"database_restored: .*2 parked rows.*has 1 of them")
    with nullcontext() if records else stops:
        lane._record(cast("psycopg.Connection[Any]", connection), LEASE, resumed)
    assert connection.recorded is records
