"""Counts the rows that each lane has not delivered, up to a limit, and tells how old the oldest of them is."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg

from contract.cursor import Cursor
from db import windows
from db.statements import queries

_LANES = queries("publisher", "lanes")

_MOST_WINDOWS = 20
"""The most windows that are searched: two million batches. A running lane passes batches without rows of its own, so only a lane that
nobody runs can have its first row beyond them."""


@dataclass(slots=True)
class LaneBacklog:
    """The undelivered rows of a lane after `cursor`, up to `last_batch`.

    `age_s`: age of the batch of the first row; None until a row is found.
    """

    lane: int
    cursor: Cursor
    last_batch: int
    rows: int = 0
    age_s: float | None = None

    def is_counted(self, count_limit: int) -> bool:
        """Whether all rows of the lane are counted, or the limit is reached."""
        return self.rows >= count_limit or self.cursor >= Cursor(self.last_batch)


def count(connection: psycopg.Connection[Any], lanes: Sequence[LaneBacklog], count_limit: int) -> None:
    """Count the rows of each lane, up to `count_limit`. Lanes are usually close together, so that one window covers all of them."""
    for _ in range(_MOST_WINDOWS):
        left = [lane for lane in lanes if not lane.is_counted(count_limit)]
        if not left:
            return
        first = min(lane.cursor.exclusive_bound()[0] for lane in left)
        window = next(windows.cut(first, max(lane.last_batch for lane in left)))
        asked = [lane for lane in left if lane.cursor.exclusive_bound()[0] <= window.last]
        rows = connection.execute(
            _LANES["backlog"],
            window.bounds
            | {
                "lanes": [lane.lane for lane in asked],
                "after_batches": [lane.cursor.exclusive_bound()[0] for lane in asked],
                "after_keys": [lane.cursor.exclusive_bound()[1] for lane in asked],
                "last_batches": [lane.last_batch for lane in asked],
                "limits": [count_limit - lane.rows for lane in asked],
            },
            prepare=False,
        )
        for lane, (found, age_s) in zip(asked, rows, strict=True):
            lane.rows += found
            lane.age_s = age_s if lane.age_s is None else lane.age_s
            lane.cursor = Cursor(min(window.last, lane.last_batch))
