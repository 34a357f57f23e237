"""`publisher retention run --every`: a run that fails is not the last one."""

import os
import signal

import psycopg
import pytest
from typer.testing import CliRunner

from publisher.cli import app
from publisher.commands import retention


def test_a_failure_that_nobody_foresaw_does_not_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[int] = []

    def run(_: object) -> None:
        runs.append(len(runs))
        if len(runs) == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        raise psycopg.errors.ForeignKeyViolation("parked_lane_fkey")

    monkeypatch.setattr(retention, "run_once", run)
    monkeypatch.setattr(retention, "parse_pause", lambda *_: 0.0)
    monkeypatch.setenv("OUTBOX_RETENTION__KEEP_S", "86400")
    result = CliRunner().invoke(app, ["retention", "run", "--every", "1h", "--yes"])
    assert result.exception is None, result.output
    assert len(runs) > 1
