"""`spark-job dead-letters retry` killed with SIGKILL: what was committed stays, the rest is as it was, and the next one completes it."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.support.outbox.letters import HERE, failed, outputs, states, with_letters
from tests.support.paths import ROOT
from tests.support.processes.environment import without_settings
from tests.support.waiting import wait_until

COMMAND = "spark-job dead-letters"
NUMBER = 6
Blocker = Callable[[psycopg.Connection[Any]], object]


@pytest.fixture
def database_with_letters(database: str) -> str:
    with psycopg.connect(database, autocommit=True) as connection:
        with_letters(connection, *(failed(f"key-{n}", 10 * n) for n in range(NUMBER)))
    return database


def before_the_writer_lock(connection: psycopg.Connection[Any]) -> None:
    """All is transformed, nothing written."""
    connection.execute("SELECT outbox.lock_writer()")


def before_the_letters_are_resolved(connection: psycopg.Connection[Any]) -> None:
    """The first batch's rows are there, uncommitted."""
    connection.execute("SELECT FROM outbox.dead_letter WHERE dead_letter_id = 1 FOR UPDATE")


def before_the_ledger_row(connection: psycopg.Connection[Any]) -> None:
    """The first batch is whole but for its ledger row, uncommitted."""
    connection.execute("LOCK TABLE outbox.batch IN SHARE MODE")


def in_the_second_batch(connection: psycopg.Connection[Any]) -> None:
    """The first batch is committed."""
    connection.execute("SELECT FROM outbox.dead_letter WHERE dead_letter_id = 3 FOR UPDATE")


@pytest.mark.guarantee(62)
@pytest.mark.parametrize(
    ("moment", "committed"),
    [
        (before_the_writer_lock, 0),
        (before_the_letters_are_resolved, 0),
        (before_the_ledger_row, 0),
        (in_the_second_batch, 2),
    ],
)
def test_a_killed_retry_leaves_whole_batches_and_the_next_one_the_rest(
    database_with_letters: str, tmp_path: Path, moment: Blocker, committed: int
) -> None:
    dsn = database_with_letters
    with psycopg.connect(dsn, autocommit=True) as observer:
        with psycopg.connect(dsn) as blocker:
            moment(blocker)
            with started(dsn, tmp_path):
                wait_until(
                    lambda: waits(observer), lambda: f"the retry waiting for the test:\n{said(tmp_path)}"
                )
        wait_until(lambda: not connected(observer), "the end of the killed retry's connection")
        resolved = [key for key, (state, _) in states(observer).items() if state == "resolved"]
        assert resolved == [f"key-{n}" for n in range(committed)]
        assert [row[1] for row in outputs(observer)] == resolved
        assert_consistent(observer)
        assert observer.execute("SELECT run_id IS NULL FROM outbox.writer").fetchone() == (False,)

        answer = run(dsn, "--all", "--yes", "--json")
        assert len(answer["retried"]) == NUMBER - committed
        assert_all_once(observer)


def test_a_retry_killed_as_it_commits_is_completed_by_the_next(
    database_with_letters: str, tmp_path: Path
) -> None:
    dsn = database_with_letters
    with psycopg.connect(dsn, autocommit=True) as observer:
        with started(dsn, tmp_path):
            wait_until(lambda: outputs(observer), lambda: f"the first batch:\n{said(tmp_path)}", poll_s=0.001)
        wait_until(lambda: not connected(observer), "the end of the killed retry's connection")
        assert_consistent(observer)
        run(dsn, "--all", "--yes", "--json")
        assert_all_once(observer)


@contextmanager
def started(dsn: str, folder: Path) -> Iterator[None]:
    """A retry of all letters, two in a batch, that is killed at the end of the block."""
    with (folder / "retry.log").open("wb") as log:
        process = subprocess.Popen(
            command("--all", "--yes", "--letters-per-batch", "2"),
            env=environment(dsn),
            cwd=ROOT,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            yield
        finally:
            process.kill()
            process.wait()


def run(dsn: str, *options: str) -> Any:
    """A whole retry; its JSON."""
    done = subprocess.run(command(*options), env=environment(dsn), cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def command(*options: str) -> list[str]:
    return [sys.executable, "-m", "spark_job", "dead-letters", "retry", *options]


def environment(dsn: str) -> dict[str, str]:
    return without_settings() | {"OUTBOX_POSTGRES__DSN": dsn, "OUTBOX_TRANSFORM__FUNCTION": f"{HERE}:good"}


def said(folder: Path) -> str:
    return (folder / "retry.log").read_text()


def waits(observer: psycopg.Connection[Any]) -> bool:
    return any(wait == "Lock" for wait in connected(observer))


def connected(observer: psycopg.Connection[Any]) -> list[str | None]:
    """What each of the retry's connections waits for."""
    rows = observer.execute(
        "SELECT wait_event_type FROM pg_stat_activity WHERE datname = current_database() AND application_name = %s",
        [COMMAND],
    )
    return [row[0] for row in rows]


def assert_consistent(observer: psycopg.Connection[Any]) -> None:
    """Letters, rows and ledger say the same."""
    rows = observer.execute(
        "SELECT b.batch_id, b.kind, b.sessions, count(DISTINCT o.session_key), count(DISTINCT d.dead_letter_id)"
        " FROM outbox.batch b LEFT JOIN outbox.session_output o USING (batch_id)"
        " LEFT JOIN outbox.dead_letter d ON d.resolved_batch = b.batch_id GROUP BY b.batch_id ORDER BY b.batch_id"
    ).fetchall()
    assert [row[0] for row in rows] == list(range(1, len(rows) + 1))
    assert all(row[2] == row[3] == row[4] for row in rows), rows
    orphans = observer.execute(
        "SELECT FROM outbox.session_output WHERE batch_id NOT IN (SELECT batch_id FROM outbox.batch)"
    )
    assert orphans.fetchall() == []


def assert_all_once(observer: psycopg.Connection[Any]) -> None:
    """Every letter is resolved, every session's outputs are there once."""
    assert {state for state, _ in states(observer).values()} == {"resolved"}
    assert [(row[1], row[3]) for row in outputs(observer)] == [(f"key-{n}", [10 * n]) for n in range(NUMBER)]
    assert_consistent(observer)
