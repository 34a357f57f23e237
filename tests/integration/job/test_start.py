"""A start that may not go on by itself: what shows that the database lost its end, and what a person's word then does."""

import copy
from collections.abc import Iterator

import psycopg
import pytest

from db.errors import ContinuityError
from spark_job import published, writer
from spark_job.recovery import Accepted
from tests.integration.job.history import History
from tests.integration.job.memory_checkpoint import Directory, Files, stand_ins


@pytest.fixture
def history(database: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[History]:
    stand_ins(monkeypatch)
    monkeypatch.setattr(published, "newest_batch", lambda _settings, _uuid: 7)
    with psycopg.connect(database, autocommit=True, options="-c role=outbox_writer") as connection:
        made = History(connection, 3)
        made.batch(most=5)
        made.batch(most=5)
        yield made


def lose_the_checkpoint(history: History) -> None:
    history.disk.directories.pop(history.now.directory.path)


def promote_the_server(database: str) -> None:
    """As far as the last start's record shows: it was on an earlier timeline."""
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute("UPDATE outbox.run SET timeline = timeline - 1")


def reason(history: History) -> str:
    return history.now.generation.reason


def test_another_server_is_no_matter_while_the_checkpoint_shows_that_nothing_is_missing(
    history: History, database: str
) -> None:
    promote_the_server(database)
    history.restart()
    assert history.restored[-1] == "checkpoint"


def test_a_lost_checkpoint_on_another_server_needs_a_word(history: History, database: str) -> None:
    promote_the_server(database)
    lose_the_checkpoint(history)
    with pytest.raises(
        ContinuityError,
        match=r"another server, or was promoted.*at most those of 5 batches.*--accept-outbox-behind",
    ):
        history.restart()
    history.accepted = Accepted(outbox_behind=True)
    history.restart()
    assert (history.now.generation.number, reason(history)) == (2, "outbox_behind")
    # That start has seen this server: the next one need not ask.
    history.accepted = Accepted()
    history.batch(most=5)
    lose_the_checkpoint(history)
    history.restart()
    assert (history.now.generation.number, reason(history)) == (3, "checkpoint_lost")


def test_a_generation_that_a_command_opened_does_not_hide_what_the_former_one_shows(
    history: History, database: str
) -> None:
    path = history.now.directory.path
    former = history.disk.directories[path]
    history.restart("rescale", buckets=2, shuffle_partitions=1)
    further = copy.deepcopy(former)
    for number in (2, 3, 4):
        further.planned[number] = former.planned[1]
    further.committed = 4
    history.disk.directories[path] = further
    with pytest.raises(
        ContinuityError, match=r"is ahead.*at most those of 5 batches.*--accept-outbox-behind"
    ):
        history.restart()

    history.disk.directories[path] = former
    promote_the_server(database)
    history.restart()
    assert history.restored[-1] == "unused_generation"
    promote_the_server(database)
    del history.disk.directories[path]
    with pytest.raises(ContinuityError, match="another server, or was promoted"):
        history.restart()


def test_a_directory_that_the_ledger_does_not_know_needs_a_word_and_keeps_its_number(
    history: History,
) -> None:
    stranger = Directory(history.disk, "/checkpoint/gen-4-abcd", {})
    stranger.files.committed = 0
    history.disk.marked.add(stranger.path)
    with pytest.raises(ContinuityError, match=r"gen-4-abcd.*does not know.*--accept-outbox-behind"):
        history.restart()
    history.accepted = Accepted(outbox_behind=True)
    history.restart()
    assert (history.now.generation.number, reason(history)) == (5, "outbox_behind")
    history.accepted = Accepted()
    history.restart()
    assert history.restored[-1] == "unused_generation"


def test_a_refused_start_leaves_the_outbox_as_it_was(history: History) -> None:
    before = history.connection.execute("SELECT * FROM outbox.generation").fetchall()
    runs = history.connection.execute("SELECT count(*) FROM outbox.run").fetchall()
    history.disk.marked.add(Directory(history.disk, "/checkpoint/gen-4-abcd", {}).path)
    history.disk.directories["/checkpoint/gen-4-abcd"] = Files()
    with pytest.raises(ContinuityError):
        history.restart()
    assert history.connection.execute("SELECT * FROM outbox.generation").fetchall() == before
    assert history.connection.execute("SELECT count(*) FROM outbox.run").fetchall() == runs
    assert writer.read_owner(history.connection).run_id is None
