"""Dead letters in the outbox: find them by a filter, read them whole, discard them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from psycopg.rows import class_row, dict_row

from db import operations
from db.connection import Connection, confirmed_transaction
from db.statements import queries
from spark_job.input.offsets import TopicPartition
from spark_job.ledger import ownership

_LETTERS = queries("spark_job", "letters")

OPEN = "open"
REASONS = ("malformed", "no_start", "restarted", "timed_out", "too_large", "transform_failed")
STATES = (OPEN, "resolved", "discarded")

LETTERS_AT_ONCE = 5_000
"""Greatest number of letters that one transaction discards."""


@dataclass(frozen=True)
class Filter:
    """Which letters a command applies to. A field that is None excludes no letter."""

    ids: tuple[int, ...] | None = None
    reasons: tuple[str, ...] | None = None
    state: str | None = None
    key: str | None = None
    since: datetime | None = None  # written at or after

    def parameters(self) -> dict[str, Any]:
        """Return the statements' parameters."""
        return {
            "ids": _array(self.ids),
            "reasons": _array(self.reasons),
            "state": self.state,
            "key": self.key,
            "since": self.since,
        }

    def asked(self) -> dict[str, Any]:
        """Return the filter as the operator log stores it: without the session key and the state."""
        keys = None if self.key is None else 1
        return self.parameters() | {
            "state": None,
            "key": None,
            "keys": keys,
            "all": self == Filter(state=OPEN),
        }


@dataclass(frozen=True)
class StoredLetter:
    """A row of outbox.dead_letter. The four event columns are parallel; `event_types` is None when the values contain the types."""

    dead_letter_id: int
    topic_id: str
    topic: str
    partition: int
    first_offset: int
    last_offset: int
    closing_offset: int
    reason: str
    revision: int
    generation: int
    batch_id: int
    session_key: str | None
    detail: str
    event_count: int
    event_offsets: list[int]
    event_times_ms: list[int]
    event_values: list[bytes | None]
    event_types: list[str | None] | None
    state: str
    resolved_batch: int | None
    state_changed_at: datetime
    created_at: datetime

    @property
    def where(self) -> TopicPartition:
        """The partition that its events came from."""
        return TopicPartition(self.topic_id, self.partition)


class LetterToRetry(NamedTuple):
    """A letter before its events are read. `bytes`: the size of its events."""

    dead_letter_id: int
    reason: str
    revision: int
    bytes: int


def find(
    connection: Connection, which: Filter, limit: int, mentioned: Sequence[str] | None = None
) -> list[dict[str, Any]]:
    """Return the columns of the first `limit` letters without their events, oldest letter first.

    `mentioned`: session keys. Returns only letters with one of these keys, and letters without a key whose events contain the bytes of
    one.
    """
    with connection.cursor(row_factory=dict_row) as cursor:
        parameters = which.parameters() | {"mentioned": _array(mentioned), "rows": limit}
        return cursor.execute(_LETTERS["list"], parameters).fetchall()


def count(
    connection: Connection, which: Filter, mentioned: Sequence[str] | None = None
) -> list[dict[str, Any]]:
    """Return {reason, state, letters, events} for each reason and state. `mentioned`: see `find`."""
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(
            _LETTERS["count"], which.parameters() | {"mentioned": _array(mentioned)}
        ).fetchall()


def read(connection: Connection, ids: Sequence[int]) -> list[StoredLetter]:
    """Return the letters with their events, in the order of `ids`; those that do not exist are left out."""
    with connection.cursor(row_factory=class_row(StoredLetter)) as cursor:
        return cursor.execute(_LETTERS["read"], {"ids": list(ids)}).fetchall()


def to_retry(connection: Connection, which: Filter) -> list[LetterToRetry]:
    """Return the letters that match, in the order in which to retry them."""
    with connection.cursor(row_factory=class_row(LetterToRetry)) as cursor:
        return cursor.execute(_LETTERS["to_retry"], which.parameters()).fetchall()


def discard(connection: Connection, which: Filter) -> list[int]:
    """Discard the open letters that match the filter now; return their ids.

    Every change of a letter's state holds the writer lock, so that a batch, a retry and a discard never wait for each other's rows. A
    batch that waits for the lock gives up after `lock_timeout_ms`. Each step therefore discards at most `LETTERS_AT_ONCE` letters and
    finds them before it takes the lock.
    """
    step: dict[str, Any] = {"after": 0, "newest": newest(connection), "rows": LETTERS_AT_ONCE}
    discarded: list[int] = []
    while found := connection.execute(_LETTERS["to_discard"], which.parameters() | step).fetchall():
        ids = [letter_id for (letter_id,) in found]
        with confirmed_transaction(connection):
            ownership.lock(connection)
            done = connection.execute(_LETTERS["discard"], {"ids": ids}).fetchall()
            now = [letter_id for (letter_id,) in done]
            if now:
                result = {"letters": len(now), "ids": now}
                operations.record(connection, "spark-job dead-letters discard", which.asked(), result)
        discarded += now
        step["after"] = ids[-1]
    return sorted(discarded)


def newest(connection: Connection) -> int:
    """Return the greatest dead_letter_id; 0 if there is no letter."""
    row = connection.execute(_LETTERS["newest"]).fetchone()
    return 0 if row is None else row[0]


def removed_up_to(connection: Connection) -> int | None:
    """Return the greatest dead_letter_id that retention has removed; None if it has removed none."""
    row = connection.execute(_LETTERS["removed_up_to"]).fetchone()
    return None if row is None else row[0]


def _array(values: Sequence[Any] | None) -> list[Any] | None:
    """Return a sequence as a statement's array parameter; None stays None."""
    return None if values is None else list(values)
