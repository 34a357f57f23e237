"""`publisher retention run --every`: a run that fails is not the last one."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from typer.testing import CliRunner

from publisher.cli import app
from publisher.commands import retention


def test_a_failure_that_nobody_foresaw_does_not_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[int] = []
    stops: list[threading.Event] = []

    def run(_: object) -> None:
        runs.append(len(runs))
        if len(runs) == 2:
            stops[0].set()
        raise psycopg.errors.ForeignKeyViolation("parked_lane_fkey")

    # A real signal would reach whatever other thread the test process has, and end it.
    @contextmanager
    def as_on_a_signal(stop: threading.Event) -> Iterator[None]:
        stops.append(stop)
        yield

    monkeypatch.setattr(retention, "stop_on_signals", as_on_a_signal)
    monkeypatch.setattr(retention, "run_once", run)
    monkeypatch.setattr(retention, "parse_pause", lambda *_: 0.0)
    monkeypatch.setenv("OUTBOX_RETENTION__KEEP_S", "86400")
    result = CliRunner().invoke(app, ["retention", "run", "--every", "1h", "--yes"])
    assert result.exception is None, result.output
    assert len(runs) > 1
