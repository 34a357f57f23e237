"""Backpressure: commit nothing while too many outputs wait for delivery, so that an outage downstream fills no disk."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

import structlog
from psycopg.rows import class_row

from db.connection import Connection
from db.statements import queries
from service.settings import JobSettings
from spark_job.monitoring.health import JobHealth

_LEDGER = queries("spark_job", "ledger")
_WRITER = queries("spark_job", "writer")

log = structlog.get_logger()


_POLL_S = 1.0
_FEW_BATCHES = 1_000


@dataclass(frozen=True)
class Backlog:
    """The outputs of all batches that the slowest lane has not delivered whole: no fewer than wait for delivery. `bytes`: the size of
    their encoded values.
    """

    events: int
    bytes: int

    def __add__(self, other: "Backlog") -> "Backlog":
        return Backlog(self.events + other.events, self.bytes + other.bytes)

    def __sub__(self, other: "Backlog") -> "Backlog":
        return Backlog(self.events - other.events, self.bytes - other.bytes)


class BacklogReader:
    """Sums the ledger's rows after the slowest lane's cursor: at first all rows, later only those added or delivered since the last read.

    So a read costs the same however long the outage lasts.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._after = self._to = 0
        self._sum = Backlog(0, 0)

    def read(self) -> Backlog:
        """Return the backlog now."""
        row = self._connection.execute(_LEDGER["backlog_bounds"]).fetchone()
        assert row is not None
        after, to = row
        # A few rows are summed again. That also corrects the sum if rows were pruned before they could be subtracted.
        if to - after <= _FEW_BATCHES or after >= self._to or to < self._to:
            self._sum = self._between(after, to)
        else:
            self._sum += self._between(self._to, to)
            self._sum += self._between(after, self._after)
            self._sum -= self._between(self._after, after)
        self._after, self._to = after, to
        return self._sum

    def _between(self, after: int, to: int) -> Backlog:
        if to <= after:
            return Backlog(0, 0)
        with self._connection.cursor(row_factory=class_row(Backlog)) as cursor:
            found = cursor.execute(_LEDGER["outputs_between"], {"after": after, "to": to}).fetchone()
        assert found is not None
        return found


class Backpressure:
    """Holds the job back at the limits `[job] max_backlog_events` and `max_backlog_bytes`; 0 is no limit."""

    def __init__(
        self, connection: Connection, run_id: UUID, settings: JobSettings, health: JobHealth
    ) -> None:
        """`health` shows whether the job is held back, and why."""
        self._connection, self._run_id, self._health = connection, run_id, health
        self._backlog = BacklogReader(connection)
        self._max_events, self._max_bytes = settings.max_backlog_events, settings.max_backlog_bytes

    def wait(self, is_ending: Callable[[], bool]) -> bool:
        """Return True once the backlog is below the limits, False if `is_ending` returns True first. Call before a batch's transaction."""
        if not self._max_events and not self._max_bytes:
            return True
        reason = self._over()
        if reason is None:
            return True
        began = time.monotonic()
        self._note(reason)
        log.warning("held_back", because=reason)
        pause = threading.Event()
        while (is_over := self._over() is not None) and not is_ending():
            pause.wait(_POLL_S)
        self._note(None)
        log.info("held_back_over", seconds=round(time.monotonic() - began, 1))
        return not is_over

    def _over(self) -> str | None:
        backlog = self._backlog.read()
        if self._max_events and backlog.events >= self._max_events:
            return f"{backlog.events} output events wait to be delivered, [job] max_backlog_events is {self._max_events}"
        if self._max_bytes and backlog.bytes >= self._max_bytes:
            return f"{backlog.bytes} bytes of outputs wait to be delivered, [job] max_backlog_bytes is {self._max_bytes}"
        return None

    def _note(self, reason: str | None) -> None:
        self._health.held_back(reason)
        self._connection.execute(_WRITER["hold_back"], {"run_id": self._run_id, "because": reason})
