"""`spark-job status` shows what ended a run and what holds it back as it was said, settings in brackets included."""

from dataclasses import fields
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from service.commands.output import console
from spark_job.ledger.ownership import Owner
from spark_job.ledger.runs import Run
from spark_job.status import job_status as status
from spark_job.status.job_status import JobStatus

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HELD = "500 output events wait to be delivered, [job] max_backlog_events is 500"
BEFORE = "UnavailableError: the schema registry at [::1] does not answer"
ENDED = "UnavailableError: a lock was held for longer than [postgres] lock_timeout_ms [/]"


def test_what_a_run_says_keeps_the_settings_that_it_names(capsys: pytest.CaptureFixture[str]) -> None:
    values: dict[str, Any] = dict.fromkeys((field.name for field in fields(Run)), 1)
    run = Run(
        **values
        | {
            "run_id": UUID(int=1),
            "started_at": NOW,
            "ended_at": NOW,
            "ended_because": ENDED,
            "failed_before": BEFORE,
            "explanation": "[fresh]",
        }
    )
    owner = Owner(UUID(int=1), "vm", 7, 8, NOW, 0.1, True, NOW, HELD)
    status.print_status(console(), JobStatus(owner, True, None, {}, run, rates=[]))
    said = capsys.readouterr().out
    assert all(text in said for text in (HELD, BEFORE, ENDED, "[fresh]"))
