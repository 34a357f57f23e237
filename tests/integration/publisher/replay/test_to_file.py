"""`publisher replay start --to-file` writes what a replay would send, whole or not at all."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from publisher.retention.hold_off import hold_off_retention
from service.errors import ContinuityError, SettingsError
from service.settings import Settings
from tests.support.outbox.batches import TOPIC_ID, Outbox, Session, simple
from tests.support.outbox.deliveries import deliver
from tests.support.outbox.replays import ReplayProcess, replay, replayed
from tests.support.queries import query


def bytes_of(value: dict[str, str] | None) -> bytes | None:
    if value is None:
        return None
    return bytes.fromhex(value["hex"]) if "hex" in value else value["text"].encode()


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_each_output_is_a_line_in_the_order_of_the_outbox(
    outbox: Outbox, settings: Settings, tmp_path: Path
) -> None:
    outbox.batch(simple(1, 3))
    outbox.batch(
        {
            "own": [
                Session(
                    [b"\xff", None],
                    9,
                    keys=[b"other", None],
                    headers=[[["a", "1"]], None],
                    timestamps_ms=[5, None],
                )
            ]
        },
        revision=1,
    )
    deliver(settings)
    path = tmp_path / "outputs.jsonl"
    counted = replayed(settings, "start", "--all", "--to-file", str(path), "--dry-run")
    assert not path.exists()
    done = replayed(settings, "start", "--all", "--to-file", str(path))
    assert (done["events"], done["file"]) == (counted["events"], str(path))
    found = lines(path)
    assert [
        (bytes_of(each["key"]), bytes_of(each["value"]), each["headers"][0][1]["text"]) for each in found
    ] == outbox.written
    assert found[-2] == {
        "topic": outbox.topic,
        "partition": None,
        "timestamp_ms": 5,
        "key": {"text": "other"},
        "value": {"hex": "ff"},
        "headers": [
            ["outbox-id", {"text": f"{TOPIC_ID}/0/9/0"}],
            ["outbox-revision", {"text": "1"}],
            ["a", {"text": "1"}],
        ],
        "batch_id": 2,
        "session_key": "own",
    }
    assert os.stat(path).st_mode & 0o777 == 0o600
    again = replay(settings, "start", "--all", "--to-file", str(path))
    assert isinstance(again.exception, SettingsError)
    some = tmp_path / "some.jsonl"
    to = ["--to-topic", f"{outbox.topic}=elsewhere"]
    assert replay(settings, "start", "--key", "own", *to, "--to-file", str(some)).exit_code == 0
    assert [(each["session_key"], each["topic"]) for each in lines(some)] == [("own", "elsewhere")] * 2
    assert query(outbox.dsn, "SELECT count(*) FROM outbox.replay") == [(0,)]


def test_a_kill_leaves_no_file_and_the_next_one_is_whole(
    outbox: Outbox, settings: Settings, tmp_path: Path
) -> None:
    # More than a pipe holds.
    outbox.batch(simple(1, 1_000))
    deliver(settings)
    path, part = tmp_path / "outputs.jsonl", tmp_path / "outputs.jsonl.part"
    # Whoever writes there waits for the reader.
    os.mkfifo(part)
    with ReplayProcess(settings, tmp_path / "log", "start", "--all", "--to-file", str(path)) as process:
        reader = os.open(part, os.O_RDONLY)
        assert os.read(reader, 10)
        process.process.send_signal(signal.SIGKILL)
        assert process.wait() == -9, process.log()
    os.close(reader)
    assert not path.exists()
    part.unlink()
    part.write_text("the half of a line")
    assert replay(settings, "start", "--all", "--to-file", str(path)).exit_code == 0
    assert len(lines(path)) == 3_000
    assert not part.exists()


def test_rows_that_are_gone_meanwhile_leave_no_file(
    outbox: Outbox, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox.batch(simple(1, 3))
    deliver(settings)

    def too_late(connection: psycopg.Connection[Any]) -> None:
        query(outbox.dsn, "DELETE FROM outbox.session_output WHERE session_key = 'k0001'")
        hold_off_retention(connection)

    monkeypatch.setattr("publisher.commands.replay.file.hold_off_retention", too_late)
    path = tmp_path / "outputs.jsonl"
    gone = replay(settings, "start", "--all", "--to-file", str(path))
    assert isinstance(gone.exception, ContinuityError)
    assert not path.exists()
