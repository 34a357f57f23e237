"""How a command names the database of a consumer: no password stands on its command line, and no message shows one."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from db.connection import _no_sessions
from outbox_consumer.store import Store
from publisher.cli import app
from publisher.trace import consumers
from publisher.trace.consumers import consumer_tables, consumptions, is_database
from service.errors import SettingsError, UnavailableError
from service.settings import PostgresSettings

# Nobody listens there.
AWAY = "host=127.0.0.1 port=1 dbname=billing user=reader"


def failure(named: str) -> Exception:
    with pytest.raises((SettingsError, UnavailableError)) as raised, consumer_tables(named, "test"):
        pass
    assert raised.value.__cause__ is None or "hush" not in repr(raised.value.__cause__)
    return raised.value


@pytest.mark.guarantee(108)
@pytest.mark.parametrize(
    "named",
    [
        "postgresql://reader:hush@127.0.0.1:1/billing",
        "postgresql://reader@127.0.0.1:1/billing?password=hush",
        f"{AWAY} password=hush",
        f"{AWAY} sslpassword=hush",
        f"{AWAY} oauth_client_secret=hush",
        f"{AWAY} scram_client_key=hush",
        f"{AWAY} scram_server_key=hush",
    ],
)
def test_a_secret_on_the_command_line_is_refused(named: str) -> None:
    error = failure(named)
    assert isinstance(error, SettingsError)
    assert "file:///PATH" in str(error)
    assert "hush" not in str(error)


def test_a_file_names_the_database(tmp_path: Path) -> None:
    file = tmp_path / "dsn"
    file.write_text("\ufeffpostgresql://reader:hush@127.0.0.1:1/billing\n", "utf-8")
    assert is_database(f"file://{file}")
    error = failure(f"file://{file}")
    assert isinstance(error, UnavailableError)
    assert "127.0.0.1:1/billing" in str(error)
    assert "[postgres]" not in str(error)
    assert "hush" not in str(error)


def test_what_to_correct_is_the_option_and_not_the_outbox_s_dsn() -> None:
    said = str(failure(AWAY))
    assert "Check --consumer" in said
    assert "[postgres]" not in said


def test_a_pooler_before_it_is_not_put_down_to_the_outbox_s_dsn(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(settings: PostgresSettings, *_: Any, **__: Any) -> None:
        raise _no_sessions(settings)

    monkeypatch.setattr(consumers, "connect", connect)
    said = str(failure(AWAY))
    assert "let --consumer" in said
    assert "[postgres]" not in said


@pytest.mark.parametrize("text", [None, "", "postgresql://reader:hu/sh@db/billing", "hush"])
def test_a_file_that_holds_no_dsn_is_told(text: str | None, tmp_path: Path) -> None:
    file = tmp_path / "dsn"
    if text is not None:
        file.write_text(text, "utf-8")
    error = failure(f"file://{file}")
    assert isinstance(error, SettingsError)
    assert "the consumer's database: " in str(error)
    assert "hush" not in str(error)


@pytest.mark.parametrize("named", ["a=hush", "postgresql://reader:hu@sh@db/billing"])
def test_words_that_are_no_dsn_are_told(named: str) -> None:
    error = failure(named)
    assert isinstance(error, SettingsError)
    assert "sh@db" not in str(error)
    assert "hush" not in str(error)


def test_an_audit_tells_before_it_reads_anything(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    named = "postgresql://reader:hush@127.0.0.1:1/billing"
    # Of the two servers, the outbox's does not answer either.
    env = {"OUTBOX_POSTGRES__DSN": "postgresql://127.0.0.1:1/outbox"}
    told = CliRunner(env=env).invoke(app, ["audit", "--consumed", named])
    assert isinstance(told.exception, SettingsError)
    assert "file:///PATH" in str(told.exception)


def test_a_row_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "consumer.db"
    with closing(sqlite3.connect(path)) as connection:
        Store(connection, "c").prepare()
        connection.execute(
            "INSERT INTO outbox_consumer_seen VALUES ('c', 'T/0', 3, 0, 'x', NULL, 't', 0, 4, '', false)"
        )
        connection.commit()
    with pytest.raises(SettingsError, match="'revision': 'x'"):
        [each.of_revision(0) for each in consumptions(f"sqlite:///{path}", ["T/0/3/0"])["T/0/3/0"]]


def test_of_the_records_of_an_output_that_were_set_aside_the_newest_are_read(tmp_path: Path) -> None:
    """Whoever may write to the topic makes them, with a reason as long as a header."""
    path = tmp_path / "consumer.db"
    with closing(sqlite3.connect(path)) as connection:
        Store(connection, "c").prepare()
        connection.executemany(
            'INSERT INTO outbox_consumer_letter (consumer, topic, topic_id, partition, "offset", outbox_id, revision, headers, reason)'
            " VALUES ('c', 't', 'i', 0, ?, ?, 0, '', ?)",
            [(offset, "T/0/3/0", "x" * 20_000) for offset in range(1_000)] + [(1_000, "T/0/4/0", "why")],
        )
        connection.commit()
    found = consumptions(f"sqlite:///{path}", ["T/0/3/0", "T/0/4/0"])
    assert [each.row.offset for each in found["T/0/3/0"]] == [*range(980, 1_000)]
    reasons = {each.row.set_aside for each in found["T/0/3/0"]}
    assert reasons == {"x" * 10_000 + " (with 980 older ones)"}
    assert [each.row.set_aside for each in found["T/0/4/0"]] == ["why"]
