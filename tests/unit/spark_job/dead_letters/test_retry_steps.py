"""The steps of a retry: no more letters at once than fit in memory, whatever producers made of them."""

import pytest

from db.connection import Connection
from spark_job.dead_letters import store
from spark_job.dead_letters.retry import Retry
from spark_job.dead_letters.store import Filter, LetterToRetry
from tests.support.outbox.letters import settings


def steps(monkeypatch: pytest.MonkeyPatch, *found: LetterToRetry) -> list[list[int]]:
    monkeypatch.setattr(store, "to_retry", lambda *_: list(found))
    connection: Connection = None  # type: ignore[assignment]
    return Retry(connection, settings("postgresql://nobody@localhost/")).steps(Filter(), 500)


@pytest.mark.parametrize("reason", ["malformed", "transform_failed"])
def test_letters_of_many_bytes_are_retried_a_few_at_a_time(
    monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    found = [LetterToRetry(number, reason, 0, 15 << 20) for number in range(1, 6)]
    at_once = 4 if reason == "malformed" else 2
    assert len(steps(monkeypatch, *found)[0]) == at_once


def test_malformed_events_without_a_byte_are_not_all_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [LetterToRetry(number, "malformed", 0, 0) for number in range(200_000)]
    assert max(map(len, steps(monkeypatch, *found))) < 70_000


def test_a_step_has_letters_of_one_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [LetterToRetry(number, "timed_out", number // 2, 1) for number in range(4)]
    assert steps(monkeypatch, *found) == [[0, 1], [2, 3]]
