"""`spark-job try --file`: a file's sessions, without any server."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from service.errors import SettingsError
from spark_job.cli import app
from spark_job.outputs import transform

TRANSFORM = """
from spark_job import OutputEvent

def transform(session):
    print("a transform may print")
    if session.key == "bad":
        raise KeyError("cents")
    yield OutputEvent("out", {"key": session.key, "events": len(session.events)}, headers=[("h", "\\x1b[2J")])
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a transform of its own, and no server."""
    name = f"transform_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(TRANSFORM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    monkeypatch.setenv("OUTBOX_TRANSFORM__FUNCTION", f"{name}:transform")
    monkeypatch.setenv("OUTBOX_KAFKA__BOOTSTRAP_SERVERS", "127.0.0.1:1")
    monkeypatch.setenv("OUTBOX_POSTGRES__DSN", "postgresql://127.0.0.1:1/none")
    transform.load.cache_clear()
    return tmp_path


def write(folder: Path, *events: tuple[str, str]) -> None:
    lines = [json.dumps({"session_key": key, "event_type": f"{kind}_event"}) for key, kind in events]
    (folder / "sessions.jsonl").write_text("\n".join(lines) + "\n")


def tried(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["try", "--file", "sessions.jsonl", *arguments])


def test_a_file_is_judged_as_the_job_would_and_nothing_is_written(folder: Path) -> None:
    write(folder, ("a\x1b[2J", "start"), ("a\x1b[2J", "end"), ("b", "entry"), ("c", "start"))
    before = sorted(folder.rglob("*"))
    done = tried()
    assert done.exit_code == 0, done.output
    assert "\x1b" not in done.stdout
    assert "a\\x1b[2J  session-events/0 offsets 0 to 1, 2 events" in done.stdout
    assert r"h=\x1b[2J" in done.stdout
    assert "record 2 becomes a dead letter no_start" in done.stdout
    assert "not ended: c\n" in done.stdout
    assert "a transform may print" not in done.stdout
    assert sorted(folder.rglob("*")) == before


def test_a_line_end_in_foreign_text_begins_no_line(folder: Path) -> None:
    write(folder, ("a\nsessions 99, failed 0", "start"), ("a\nsessions 99, failed 0", "end"))
    lines = tried().stdout.splitlines()
    assert [line for line in lines if line.startswith("sessions")] == [
        "sessions 1; read: 2 records of sessions.jsonl"
    ]
    assert lines[0].startswith(r"a\nsessions 99, failed 0  session-events/0 offsets 0 to 1")


def test_a_failure_is_shown_with_its_traceback_and_as_the_exit_code(folder: Path) -> None:
    write(folder, ("bad", "start"), ("bad", "end"), ("a", "start"), ("a", "end"))
    done = tried("--json")
    found: dict[str, Any] = json.loads(done.stdout)
    assert done.exit_code == found["failed"] == 1
    assert "KeyError: 'cents'" in found["sessions"][0]["failure"]
    (output,) = found["sessions"][1]["outputs"]
    assert output["value"] == {"text": '{"key":"a","events":2}'}
    assert output["headers"] == [["h", {"text": "\x1b[2J"}]]
    assert found["outbox"] == {"compared": False, "because": "a file's sessions have no place in the input"}
    assert "KeyError: 'cents'" in tried().stdout


def test_a_file_that_is_not_there_is_named(folder: Path) -> None:
    done = tried()
    assert isinstance(done.exception, SettingsError)
    assert "--file 'sessions.jsonl' cannot be read" in str(done.exception)
