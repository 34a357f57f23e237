"""Removes dead letters past their limits, in short transactions: first resolved and discarded letters, then, with `drop_open_letters`, open
ones."""

from dataclasses import dataclass
from typing import Any

import psycopg

from db import operations
from db.statements import queries
from service.lifecycle.fault_points import reach
from service.settings import RetentionSettings

_LETTERS = queries("publisher.retention", "letters")

_LETTERS_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class LettersSurvey:
    """How many dead letters there are, and how much space they take. `disk_bytes` includes indexes and free space.

    The other fields are None if the login may not read letters, or if no limit is set. `bytes`: size of the rows. `old_closed`, `old_open`:
    letters older than `keep_letters_s`.
    """

    disk_bytes: int
    closed: int | None = None
    open: int | None = None
    bytes: int | None = None
    old_closed: int | None = None
    old_open: int | None = None


def survey_letters(connection: psycopg.Connection[Any], settings: RetentionSettings) -> LettersSurvey:
    """Survey the letters. Reads every letter's row if a limit is set. Raises psycopg.Error."""
    row = connection.execute(_LETTERS["disk"]).fetchone()
    assert row is not None
    disk_bytes, is_readable = row
    if not is_readable or not is_limited(settings):
        return LettersSurvey(disk_bytes)
    kept = connection.execute(_LETTERS["kept"], {"keep_s": settings.keep_letters_s}).fetchone()
    assert kept is not None
    return LettersSurvey(disk_bytes, *kept)


def is_limited(settings: RetentionSettings) -> bool:
    """Whether any limit is set, so that letters are removed at all."""
    return settings.keep_letters_s is not None or settings.keep_letters_bytes is not None


def remove_letters(
    connection: psycopg.Connection[Any], settings: RetentionSettings, rows_at_once: int = _LETTERS_AT_ONCE
) -> int:
    """Remove the letters past the limits; return their number. `connection` must be in autocommit mode. Raises psycopg.Error."""
    if not is_limited(settings):
        return 0
    excess = 0
    if settings.keep_letters_bytes is not None:
        excess = max(0, (survey_letters(connection, settings).bytes or 0) - settings.keep_letters_bytes)
    removed = 0
    for is_open in (False, True) if settings.drop_open_letters else (False,):
        after, more = 0, True
        while more:
            parameters = {
                "keep_s": settings.keep_letters_s,
                "after": after,
                "excess": excess,
                "rows": rows_at_once,
            }
            with connection.transaction():
                remove = _LETTERS["remove_open"] if is_open else _LETTERS["remove_closed"]
                row = connection.execute(remove, parameters).fetchone()
                assert row is not None
                deleted, freed, after, more = row
                if deleted:
                    removal = {"letters": deleted, "open": is_open, "up_to": after}
                    operations.record(connection, "publisher retention run", {}, removal)
            removed, excess = removed + deleted, max(0, excess - freed)
            if deleted:
                reach("retention.during_pruning")
    return removed
