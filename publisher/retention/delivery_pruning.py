"""Prunes the log of deliveries, in `publisher run` and in `publisher retention run`, also where outputs are kept for ever."""

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
"""The most rows that one transaction deletes: the lane's own next delivery waits for it."""


class DeliveryPruning:
    """Prunes lane after lane, a step at a time. Any number of processes may do so at once."""

    def __init__(self, keep_s: int, rows_at_once: int = _ROWS_AT_ONCE) -> None:
        """`keep_s`: deliveries that are younger stay."""
        self._keep_s = keep_s
        self._rows = rows_at_once
        self._lanes: deque[tuple[int, int]] = deque()
        self._next_pass = 0.0

    def try_turn(self, connection: psycopg.Connection[Any]) -> None:
        """Do at most one step that deletes. A failure is logged and ends this pass: a log that grows must not stop the delivery."""
        try:
            self.turn(connection)
        except psycopg.Error as error:
            self._lanes.clear()
            _log.warning("deliveries_not_pruned", reason=str(error).strip(), next_try_s=_PASS_S)

    def turn(self, connection: psycopg.Connection[Any]) -> int:
        """Do at most one step that deletes; return how many it deleted. `connection` in autocommit mode. Raises psycopg.Error."""
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
