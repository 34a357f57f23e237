"""Of records that begin amid a partition, `spark-job try` takes the sessions that are whole, and the parts of these."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from service.settings import Settings
from spark_job.testing.records import Record, table_of
from spark_job.testing.running import TransformRunner
from spark_job.trial.cli import begun_within

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
SILENT = {"start": "", "entry": "*", "end": "", "on_timeout": "emit", "max_events": 2}


def event(key: str, second: int) -> Record:
    value = {"session_key": key, "event_type": "x"}
    return Record(value, timestamp=BEGIN + timedelta(seconds=second))


@pytest.mark.parametrize("is_whole", [True, False])
def test_no_part_of_a_session_that_may_have_begun_before_is_taken(is_whole: bool) -> None:
    """Its parts would be others than the job's, however long ago what was read begins."""
    times = {"long": range(0, 400, 50), "new": range(70, 270, 40), "next": range(500, 501)}
    records = sorted((second, key) for key, seconds in times.items() for second in seconds)
    session: dict[str, Any] = SILENT
    settings = Settings.model_validate({"session": session, "source": {"topics": ["in"]}})
    runner = TransformRunner(lambda _: [], settings)
    table = table_of([event(key, second) for second, key in [*records, (501, "last")]], runner.columns)
    sessions = runner.assembled(table, "in", 0).sessions
    found = begun_within(sessions, settings.session, is_whole=is_whole)
    parts = [(each.closed.key, each.closed.part, each.closed.ended_by) for each in found]
    of_new = [("new", 1, "limit"), ("new", 2, "limit"), ("new", 3, "timeout")]
    assert [each for each in parts if each[0] == "new"] == of_new
    assert len(parts) == (3 + 4 if is_whole else 3)
