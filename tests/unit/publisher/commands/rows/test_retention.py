"""`publisher retention`: a run that fails is not the last one, and a plan tells of dead letters."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict

import psycopg
import pytest
from typer.testing import CliRunner

from publisher.cli import app
from publisher.commands.rows import retention
from publisher.retention.letters import LettersSurvey
from publisher.retention.survey import Growth, RetentionSurvey
from service.errors import SettingsError


@pytest.mark.parametrize(
    "failure",
    [psycopg.errors.ForeignKeyViolation("parked_lane_fkey"), SettingsError("[retention] archive: Mount it")],
    ids=["one that nobody foresaw", "an archive that is not mounted"],
)
def test_a_failure_does_not_end_it(monkeypatch: pytest.MonkeyPatch, failure: Exception) -> None:
    runs: list[int] = []
    stops: list[threading.Event] = []

    def run(_: object) -> None:
        runs.append(len(runs))
        if len(runs) == 2:
            stops[0].set()
        raise failure

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


@pytest.mark.parametrize(
    ("limits", "letters", "said"),
    [
        (
            {},
            LettersSurvey(2_000_000),
            "dead letters: 2.0 MB on disk, kept for ever ([retention] keep_letters_s, keep_letters_bytes)",
        ),
        (
            {"KEEP_LETTERS_S": "86400"},
            LettersSurvey(2_000_000),
            "dead letters: 2.0 MB on disk; this login may not read how many are past their limit",
        ),
        (
            {"KEEP_LETTERS_S": "86400", "KEEP_LETTERS_BYTES": "1500000"},
            LettersSurvey(2_000_000, closed=30, open=5, bytes=1_600_000, old_closed=7, old_open=2),
            "dead letters: 2.0 MB on disk, 1.6 MB in 30 resolved or discarded and 5 open ones; to be removed: 7 by age, 100.0 kB by size",
        ),
        (
            {"KEEP_LETTERS_S": "86400", "DROP_OPEN_LETTERS": "true"},
            LettersSurvey(2_000_000, closed=30, open=5, bytes=1_600_000, old_closed=7, old_open=2),
            "to be removed: 9 by age, 0 B by size",
        ),
    ],
    ids=["no limit", "no right", "by age and size", "open ones too"],
)
def test_a_plan_tells_of_dead_letters_in_words_and_in_json(
    limits: dict[str, str], letters: LettersSurvey, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = RetentionSurvey([], [], Growth(5, 5, 60.0, 1_000), letters)
    monkeypatch.setattr(retention, "database", lambda *_: nullcontext())
    monkeypatch.setattr(retention, "survey", lambda *_: found)
    for name, value in limits.items():
        monkeypatch.setenv(f"OUTBOX_RETENTION__{name}", value)
    printed = CliRunner().invoke(app, ["retention", "plan"])
    assert printed.exit_code == 0, printed.output
    assert said in " ".join(printed.output.split())
    as_json = CliRunner().invoke(app, ["retention", "plan", "--json"])
    assert json.loads(as_json.stdout)["letters"] == asdict(letters)
