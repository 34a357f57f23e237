"""`spark-job dead-letters` as people and machines use it."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from db.connection import Connection
from service.errors import OutboxError
from spark_job.cli import app
from spark_job.dead_letters import store
from tests.support.outbox.letters import HERE, WHOLE, events, failed, states, unended, with_letters
from tests.support.queries import query
from tests.support.sink.batches import letter

Command = Callable[..., Result]


@pytest.fixture
def command(database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs `spark-job dead-letters` on an outbox with letters 1 to 5, of which 1 has a failing transform still."""
    with_letters(
        connection,
        failed("bad", 10),
        failed("a", 20),
        unended("late", 30, 40),
        letter(None, 50, 50, "malformed", [b"\xff\x00"]),
        letter("[k]", 60, 60, "no_start", [None]),
    )
    monkeypatch.setenv("OUTBOX_POSTGRES__DSN", database)
    monkeypatch.setenv("OUTBOX_TRANSFORM__FUNCTION", f"{HERE}:moody")
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str, answer: str | None = None) -> Result:
        result = CliRunner().invoke(app, ["dead-letters", *arguments], input=answer)
        if isinstance(result.exception, OutboxError):
            raise result.exception
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    return run


def ids(result: Result) -> list[int]:
    return [row["dead_letter_id"] for row in json.loads(result.output)["letters"]]


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ((), [1, 2, 3, 4, 5]),
        (("--reason", "transform_failed", "--reason", "malformed"), [1, 2, 4]),
        (("--key", "late"), [3]),
        (("--since", "1h"), [1, 2, 3, 4, 5]),
        (("--since", "2100-01-01"), []),
        (("--state", "discarded"), []),
        (("--state", "all", "--limit", "2"), [1, 2]),
    ],
)
def test_list_shows_what_the_filters_name(command: Command, options: Sequence[str], found: list[int]) -> None:
    assert ids(command("list", "--json", *options)) == found


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        ("late\na\n", [2, 3]),
        ("person-7", [4]),
        ("Person-7", []),
        ("nobody\nperson\nbad", [1, 4]),
        ("[k]", [5]),
    ],
)
def test_list_finds_letters_of_keys_and_those_without_a_key_that_hold_one(
    command: Command, database: str, tmp_path: Path, keys: str, found: list[int]
) -> None:
    query(
        database,
        'UPDATE outbox.dead_letter SET event_values = ARRAY[\'{"session_key": "person-7\'::bytea] WHERE dead_letter_id IN (4, 5)',
    )
    file = tmp_path / "keys"
    file.write_text(keys)
    assert ids(command("list", "--json", "--keys-file", str(file))) == found


def test_list_counts_by_reason_all_that_the_filters_name(command: Command) -> None:
    text = command("list", "--limit", "1").output
    assert "bad" in text
    assert "late" not in text
    assert "4 more: raise --limit" in text
    assert "input/0 offsets 10 to 12, closed at 12\n" in text
    assert max(map(len, text.splitlines())) <= 80
    counts = json.loads(command("list", "--json", "--limit", "0").output)["counts"]
    assert {row["reason"]: (row["letters"], row["events"]) for row in counts} == {
        "malformed": (1, 1),
        "no_start": (1, 1),
        "timed_out": (1, 2),
        "transform_failed": (2, 6),
    }
    assert "no letters" in command("list", "--key", "nobody").output


def test_show_has_every_event_with_its_value(command: Command) -> None:
    shown = json.loads(command("show", "1", "--json").output)
    assert (shown["reason"], shown["session_key"], shown["detail"]) == (
        "transform_failed",
        "bad",
        "test transform_failed",
    )
    assert [event["offset"] for event in shown["events"]] == [10, 11, 12]
    assert json.loads(shown["events"][1]["text"]) == {
        "event_type": "entry_event",
        "session_key": "bad",
        "n": 1,
    }
    assert shown["events"][0]["time"] == "1970-01-01T00:00:01.010+00:00"
    (event,) = json.loads(command("show", "4", "--json").output)["events"]
    assert event["hex"] == "ff00"
    (event,) = json.loads(command("show", "5", "--json").output)["events"]
    assert set(event) == {"offset", "time"}
    text = command("show", "4").output
    assert "hex ff00" in text
    text = command("show", "5").output
    assert "[k]" in text
    assert "no value" in text


def test_show_cuts_nothing_and_knows_each_event_s_type(command: Command) -> None:
    shown = json.loads(command("show", "1", "--json").output)["events"]
    assert [event["type"] for event in shown] == list(WHOLE)
    text = command("show", "1").output
    assert "…" not in text
    for event in shown:
        assert f"{event['offset']}      {event['time']}  {event['type']}" in text
        assert f"\n  {event['text']}\n" in text


def test_show_raw_prints_the_bytes_of_the_values_alone(command: Command) -> None:
    assert command("show", "1", "--raw").stdout_bytes == b"".join(value + b"\n" for value in events("bad"))
    assert command("show", "4", "--raw").stdout_bytes == b"\xff\x00\n"


def test_show_raw_acts_on_no_terminal(
    command: Command, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = "title \x1b]0;x\x07 ü\t".encode() + b"\xff"
    query(
        database,
        "UPDATE outbox.dead_letter SET event_values = ARRAY[%s::bytea] WHERE dead_letter_id = 4",
        value,
    )
    assert command("show", "4", "--raw").stdout_bytes == value + b"\n"
    monkeypatch.setattr("typer.testing._NamedTextIOWrapper.isatty", lambda _: True)
    assert command("show", "4", "--raw").output == "title \\x1b]0;x\\x07 ü\t\\xff\n"


def test_retry_tells_what_became_of_each_letter(command: Command, connection: Connection) -> None:
    result = command("retry", "--all", "--yes", "--incomplete", "--json")
    done = json.loads(result.output)
    assert result.exit_code == 1
    assert [row["id"] for row in done["retried"]] == [2, 3]
    assert (done["batches"], done["output_events"], done["dry_run"]) == ([2], 2, False)
    assert [(row["id"], row["error"]) for row in done["failed"]] == [
        (1, "ValueError: still no luck with bad")
    ]
    assert [row["id"] for row in done["refused"]] == [4, 5]
    found = states(connection)
    assert (found["a"], found["late"], found["bad"]) == (("resolved", 2), ("resolved", 2), ("open", None))
    text = command("retry", "1", "2").output
    assert "refused 2: batch 2 has resolved it" in text
    assert "failed again 1: ValueError: still no luck with bad" in text
    assert "in moody" in text


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("2",), 0),
        (("3",), 1),
        (("2", "3"), 1),
        (("--reason", "timed_out", "--yes"), 0),
        (("--key", "bad", "--yes"), 1),
    ],
)
def test_the_exit_code_tells_whether_what_was_named_is_done(
    command: Command, options: Sequence[str], code: int
) -> None:
    """A filter may name what cannot be retried; an id should not."""
    assert command("retry", *options).exit_code == code


def test_a_dry_run_asks_nobody_and_writes_nothing(command: Command, connection: Connection) -> None:
    before = states(connection)
    text = command("retry", "--all", "--dry-run").output
    assert "letters that would be retried: 1, output events: 1" in text
    assert states(connection) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("retry", "--all"), "this would retry 5 letters, and there is nobody to ask: say --yes"),
        (("discard", "1"), "this would discard 1 letters, and there is nobody to ask: say --yes"),
        (("retry",), "name letters by their ids"),
        (("retry", "1", "--all"), "name letters by their ids"),
        (("discard", "--yes"), "name letters by their ids"),
        (("retry", "1", "99"), "there is no letter 99"),
        (("discard", "1", "98", "99", "--yes"), "there is no letter 98, 99. Nothing was done"),
        (("show", "99"), "there is no letter 99"),
        (("list", "--reason", "late"), "'late' is none of malformed"),
        (("list", "--state", "lost"), "'lost' is none of open"),
        (("list", "--since", "yesterday"), "is neither a time"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_done(
    command: Command, connection: Connection, arguments: Sequence[str], message: str
) -> None:
    before = states(connection)
    with pytest.raises(OutboxError, match=message.replace("?", r"\?")) as refused:
        command(*arguments)
    assert refused.value.exit_code == 2
    assert states(connection) == before


def test_letters_are_discarded_in_steps_each_with_the_writer_lock_for_itself(
    command: Command, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one transaction, 850,000 letters held up the job's batch for longer than its lock timeout."""
    monkeypatch.setattr(store, "LETTERS_AT_ONCE", 2)
    every = ids(command("list", "--json"))
    assert len(every) > 4
    result = command("discard", "--all", "--yes", "--json")
    assert json.loads(result.output) == {"discarded": every, "not_open": []}
    steps = connection.execute(
        "SELECT count(*) FROM outbox.dead_letter WHERE state = 'discarded' GROUP BY xmin::text"
    ).fetchall()
    assert len(steps) == (len(every) + 1) // 2
    assert max(count for (count,) in steps) == 2


@pytest.mark.guarantee(66)
def test_discarded_letters_are_no_longer_open_and_cannot_be_retried(
    command: Command, connection: Connection
) -> None:
    result = command("discard", "--reason", "no_start", "--reason", "malformed", "--yes", "--json")
    assert json.loads(result.output) == {"discarded": [4, 5], "not_open": []}
    assert ids(command("list", "--json")) == [1, 2, 3]
    again = command("discard", "3", "4", "--yes")
    assert again.exit_code == 1
    assert "letters discarded: 1\nnot open, left as they are: 4" in again.output
    kept: Any = json.loads(command("show", "4", "--json").output)
    assert (kept["state"], len(kept["events"])) == ("discarded", 1)
    assert "it is discarded" in command("retry", "3", "--incomplete").output


def logged(database: str) -> list[Any]:
    return query(database, "SELECT command, arguments, result FROM outbox.operation ORDER BY operation_id")


def test_retry_and_discard_leave_their_rows_in_the_operator_log(command: Command, database: str) -> None:
    command("retry", "--all", "--dry-run")
    command("list")
    assert logged(database) == []
    command("retry", "2")
    command("discard", "--reason", "malformed", "--yes")
    command("discard", "--key", "late", "--yes")
    command("discard", "--key", "late", "--yes")
    assert logged(database) == [
        ("spark-job dead-letters retry", {"ids": [2]}, {"ids": [2], "batches": [2], "superseded": 0}),
        ("spark-job dead-letters discard", {"reasons": ["malformed"]}, {"letters": 1, "ids": [4]}),
        ("spark-job dead-letters discard", {"keys": 1}, {"letters": 1, "ids": [3]}),
    ]


def test_letters_whose_row_cannot_be_written_stay_as_they_are(
    command: Command, connection: Connection, database: str
) -> None:
    query(database, "ALTER TABLE outbox.operation ADD CONSTRAINT operation_refused CHECK (false) NOT VALID")
    before = states(connection)
    for line in (("retry", "2"), ("discard", "--all", "--yes")):
        with pytest.raises(AssertionError, match="operation_refused"):
            command(*line)
    assert states(connection) == before
    assert query(database, "SELECT count(*) FROM outbox.batch WHERE kind = 'retry'") == [(0,)]
