"""`publisher replay start --to-file` writes what a replay would send, whole or not at all."""

import base64
import json
import os
import random
import signal
import sys
from itertools import groupby
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.parquet
import pytest

from publisher.archive.parquet import SCHEMA
from publisher.retention.retention_lock import hold_off_retention
from service.errors import ContinuityError, SettingsError
from service.printable import bytes_json
from service.settings import Settings
from tests.support.outbox.batches import TOPIC_ID, Outbox, Session, simple
from tests.support.outbox.deliveries import deliver
from tests.support.outbox.replays import ReplayProcess, replay, replayed
from tests.support.processes.archiving import stored_rows, varied
from tests.support.queries import query


def bytes_of(value: dict[str, str] | None) -> bytes | None:
    if value is None:
        return None
    return bytes.fromhex(value["hex"]) if "hex" in value else value["text"].encode()


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def outputs_of(row: dict[str, Any]) -> list[tuple[Any, ...]]:
    """The outputs of a row of Parquet, in the words of the lines."""

    def shown(value: bytes | None) -> dict[str, str] | None:
        return None if value is None else bytes_json(value)

    def column(name: str) -> list[Any]:
        return [None] * len(row["topics"]) if row[name] is None else row[name]

    headers = [
        [
            [
                name,
                shown(
                    value.encode() if isinstance(value, str) else value and base64.b64decode(value["base64"])
                ),
            ]
            for name, value in json.loads(each)
        ]
        for each in row["headers"]
    ]
    keys = [shown(row["session_key"].encode() if key is None else key) for key in column("keys")]
    return list(
        zip(
            row["topics"],
            column("partitions"),
            column("timestamps_ms"),
            keys,
            map(shown, row["values"]),
            headers,
            strict=True,
        )
    )


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


def test_parquet_has_the_columns_of_the_archive_and_of_the_outputs_what_would_be_sent(
    outbox: Outbox, settings: Settings, tmp_path: Path
) -> None:
    outbox.batch(simple(1, 3) | varied(500))
    outbox.batch({"two": [Session([b"a"], 9), Session([b"b", b"c"], 10)]}, revision=1)
    deliver(settings)
    query(
        outbox.dsn,
        "UPDATE outbox.session_output SET topics = ARRAY['a', 'b', 'a'] WHERE session_key = 'two'",
    )
    lines_path, path = tmp_path / "outputs.jsonl", tmp_path / "outputs.parquet"
    assert replay(settings, "start", "--all", "--to-file", str(lines_path)).exit_code == 0
    done = replayed(settings, "start", "--all", "--to-file", str(path))
    assert pyarrow.parquet.read_schema(path).equals(SCHEMA)
    rows = pyarrow.parquet.read_table(path).to_pylist()
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert [outputs_of(row) for row in rows] == [
        [
            (
                line["topic"],
                line["partition"],
                line["timestamp_ms"],
                line["key"],
                line["value"],
                line["headers"],
            )
            for line in found
        ]
        for _, found in groupby(lines(lines_path), lambda line: (line["batch_id"], line["session_key"]))
    ]
    assert sum(len(row["topics"]) for row in rows) == done["events"] == len(outbox.written)
    kept = [row for row in stored_rows(outbox.dsn, 2) if row["topics"]]
    same = {
        "topics",
        "values",
        "keys",
        "partitions",
        "timestamps_ms",
        "session_outputs",
        "lane",
        "session_starts",
    }
    assert [{name: row[name] for name in same} for row in rows] == [
        {name: row[name] for name in same} for row in kept
    ]
    assert [row["committed_at"] for row in rows] == [
        at
        for (at,) in query(
            outbox.dsn,
            "SELECT b.created_at FROM outbox.batch b JOIN outbox.session_output o USING (batch_id) WHERE o.topics <> '{}' ORDER BY 1",
        )
    ]
    some = tmp_path / "some.PARQUET"
    arguments = ("--topic", "a", "--to-topic", "a=elsewhere")
    assert replay(settings, "start", *arguments, "--to-file", str(some)).exit_code == 0
    (row,) = pyarrow.parquet.read_table(some).to_pylist()
    assert (row["topics"], row["values"], row["session_outputs"]) == (["elsewhere"] * 2, [b"a", b"c"], [1, 1])
    assert [json.loads(each)[0] for each in row["headers"]] == [
        ["outbox-id", f"{TOPIC_ID}/0/9/0"],
        ["outbox-id", f"{TOPIC_ID}/0/10/1"],
    ]


def test_parquet_without_its_library_is_refused_before_anything_is_read(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "publisher.commands.replay.parquet_file", None)
    refused = replay(settings, "start", "--all", "--to-file", str(tmp_path / "outputs.parquet"), "--dry-run")
    assert "pip install 'spark-outbox[archive]'" in str(refused.exception)


@pytest.mark.parametrize("name", ["outputs.jsonl", "outputs.parquet"])
def test_a_full_disk_leaves_no_file(outbox: Outbox, settings: Settings, tmp_path: Path, name: str) -> None:
    outbox.batch(simple(1, 3))
    deliver(settings)
    path, part = tmp_path / name, tmp_path / f"{name}.part"
    part.symlink_to("/dev/full")
    full = replay(settings, "start", "--all", "--to-file", str(path))
    assert isinstance(full.exception, SettingsError)
    assert "No space left" in str(full.exception)
    assert not path.exists()
    part.unlink()
    assert replay(settings, "start", "--all", "--to-file", str(path)).exit_code == 0
    assert path.stat().st_size > 0


@pytest.mark.parametrize("name", ["outputs.jsonl", "outputs.parquet"])
def test_a_kill_leaves_no_file_and_the_next_one_is_whole(
    outbox: Outbox, settings: Settings, tmp_path: Path, name: str
) -> None:
    # More than a pipe holds, however it is compressed.
    values = random.Random(0).randbytes
    outbox.batch({f"k{n:04}": [Session([values(1_000)] * 3, n)] for n in range(1, 1_001)})
    deliver(settings)
    path, part = tmp_path / name, tmp_path / f"{name}.part"
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
    if path.suffix == ".parquet":
        assert sum(map(len, pyarrow.parquet.read_table(path)["topics"].to_pylist())) == 3_000
    else:
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
