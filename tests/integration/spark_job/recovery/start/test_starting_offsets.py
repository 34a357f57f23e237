"""Where the first generation begins is decided once: what is stored holds, and before it is stored nothing else is."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from db.connection import Connection
from service.errors import SettingsError
from spark_job.input.offsets import TopicPartition
from spark_job.recovery import start as starting
from tests.support.recovery.starts import Input, everything, newest, run_row, settings, start
from tests.support.sink.batches import P0, P1

TEN = datetime(2026, 11, 24, 10, tzinfo=UTC)


def source(starting_offsets: object) -> Any:
    return settings(source={"topics": ["input"], "starting_offsets": starting_offsets})


def at_ten(offset: int) -> Input:
    """Partition 1 has no record as late."""
    return Input(times={P0: {TEN: offset}})


@pytest.mark.parametrize(
    ("given", "begins", "says"),
    [
        (
            "2026-11-24T11:00:00+01:00",
            {P0: 120, P1: 500},
            "fresh start: the first generation reads from 2026-11-24T10:00:00Z on; at its end where no record is as late: input/1",
        ),
        (
            {"input": {"0": 5, "1": 500}},
            {P0: 5, P1: 500},
            "fresh start: the first generation reads from the offsets of [source] starting_offsets on",
        ),
    ],
)
def test_the_first_start_stores_and_says_where_it_begins(
    connection: Connection, given: object, begins: Mapping[TopicPartition, int], says: str
) -> None:
    assert start(connection, at_ten(120), of=source(given)).begun.resumes_at == begins
    assert (newest(connection).start, newest(connection).explanation) == (begins, says)
    assert run_row(connection)["explanation"] == says


def test_what_is_stored_holds_whatever_kafka_and_the_settings_say_later(connection: Connection) -> None:
    start(connection, at_ten(120), of=source("2026-11-24T10:00:00Z"))
    for of in (source("2026-11-24T10:00:00Z"), source({}), source("latest")):
        assert start(connection, at_ten(300), of=of).begun.resumes_at == {P0: 120, P1: 500}


class Killed(BaseException):
    """Stands for kill -9: no handler sees it."""


@pytest.mark.guarantee(21)
@pytest.mark.parametrize(
    ("at", "stored"),
    [
        ("start.after_take_over", False),
        ("start.after_decision", False),
        ("start.after_generation", False),
        ("start.after_run", False),
        ("start.after_commit", True),
    ],
)
def test_a_start_that_dies_has_stored_its_position_or_nothing_at_all(
    connection: Connection, monkeypatch: pytest.MonkeyPatch, at: str, stored: bool
) -> None:
    """So nothing is ever in the outbox that was read from another position than the stored one."""
    before = everything(connection)

    def die(name: str) -> None:
        if name == at:
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(starting, "reach", die)
        with pytest.raises(Killed):
            start(connection, at_ten(120), of=source("2026-11-24T10:00:00Z"))
    assert (everything(connection) == before) is not stored
    if stored:
        assert newest(connection).start == {P0: 120, P1: 500}
    # Retention has taken records meanwhile, and the same time is another offset now.
    following = start(connection, at_ten(300), of=source("2026-11-24T10:00:00Z"), take_over=True)
    assert following.begun.resumes_at == {P0: 120 if stored else 300, P1: 500}
    assert newest(connection).number == 1


def test_a_table_that_does_not_fit_leaves_everything_as_it_was(connection: Connection) -> None:
    before = everything(connection)
    with pytest.raises(SettingsError, match="input/1 is missing: Kafka holds offsets 0 to 500"):
        start(connection, of=source({"input": {"0": 5}}))
    assert everything(connection) == before
