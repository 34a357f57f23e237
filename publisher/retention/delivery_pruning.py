"""Prunes the log of deliveries, in `publisher run` and in `publisher retention run`, even if outputs are kept for ever."""

import time
from collections import deque
from typing import Any

import psycopg
import structlog

from db.statements import queries

_PRUNING = queries("publisher.retention", "pruning")

_log = structlog.get_logger()

_PASS_S = 60.0
_ROWS_AT_ONCE = 2_000
"""The most rows that one transaction deletes. The lane's own next delivery waits for that transaction."""


class DeliveryPruning:
    """Prunes one lane after another, one step at a time. Any number of processes may do so at once."""

    def __init__(self, keep_s: int, rows_at_once: int = _ROWS_AT_ONCE) -> None:
        """`keep_s`: deliveries younger than this stay."""
        self._keep_s = keep_s
        self._rows = rows_at_once
        self._lanes: deque[tuple[int, int]] = deque()
        self._next_pass = 0.0

    def try_turn(self, connection: psycopg.Connection[Any]) -> None:
        """Do what `turn` does. A failure is logged and ends this pass, because pruning must never stop the delivery."""
        try:
            self.turn(connection)
        except psycopg.Error as error:
            self._lanes.clear()
            wait_s = max(0.0, self._next_pass - time.monotonic())
            _log.warning("deliveries_not_pruned", reason=str(error).strip(), next_try_s=round(wait_s, 1))

    def turn(self, connection: psycopg.Connection[Any]) -> int:
        """Prune until a step has deleted rows or the pass ends; return how many rows were deleted. Raises psycopg.Error.

        A new pass begins at most once in `_PASS_S` seconds. Until then nothing is done.

        `connection` must be in autocommit mode.
        """
        if not self._lanes:
            if time.monotonic() < self._next_pass:
                return 0
            self._next_pass = time.monotonic() + _PASS_S
            self._lanes.extend(connection.execute(_PRUNING["lanes"]).fetchall())
        while self._lanes:
            deleted, more = self._step(connection, *self._lanes[0])
            if not more:
                self._lanes.popleft()
            if deleted:
                return deleted
        return 0

    def whole_pass(self, connection: psycopg.Connection[Any]) -> int:
        """Prune all lanes once; return how many deliveries were deleted."""
        self._lanes.clear()
        self._next_pass = 0.0
        deleted = self.turn(connection)
        while self._lanes:
            deleted += self.turn(connection)
        return deleted

    def _step(self, connection: psycopg.Connection[Any], epoch: int, lane: int) -> tuple[int, bool]:
        row = connection.execute(
            _PRUNING["deliveries"],
            {"epoch": epoch, "lane": lane, "keep_s": self._keep_s, "rows": self._rows},
        ).fetchone()
        return (0, False) if row is None else (row[0], row[1])
