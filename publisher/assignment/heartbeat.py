"""A thread that renews this process' row in `outbox.publisher_process`, and the leases of its lanes, except those of lanes that hang."""

import os
import threading
from typing import Any

import psycopg
import structlog

from db.connection import connect, longest_wait_s
from db.statements import queries
from publisher.delivery.context import Context
from publisher.monitoring.health import ProcessHealth
from publisher.outbox.identity import check_unchanged
from publisher.protocol.epochs import LaneId
from service.errors import UnavailableError
from service.lifecycle.backoff import Backoff
from service.lifecycle.process import host_name
from service.observability.loops import Loop

_PROCESSES = queries("publisher", "processes")
_WAKEUPS = queries("publisher", "wakeups")

_log = structlog.get_logger()

# The longest pause between two beats. The heartbeat notices a broken connection at its next beat; until it has reconnected, other processes
# may consider this one dead.
_MOST_S = 2.0


class ProcessHeartbeat:
    """Beats every 2 s, or every `lease_s` / 3 if that is shorter, also while the lanes wait for Kafka or Postgres.

    A suspended process (SIGSTOP) renews nothing. When a process is killed, its Postgres backend ends. A lane that is late at two
    consecutive beats hangs; its lease then ends if another process is alive (decision 27).
    """

    def __init__(self, context: Context, health: ProcessHealth) -> None:
        """`health`: receives each beat."""
        self._context = context
        self._health = health
        self._lease_s = context.settings.publisher.lease_s
        self._parameters = {
            "holder": context.holder,
            "host": host_name(),
            "pid": os.getpid(),
            "lease_s": self._lease_s,
        }
        self._pause_s = min(self._lease_s / 3, _MOST_S)
        self._ended = False
        self._wanted = threading.Event()
        self._takes_lanes = True
        self._late: frozenset[LaneId] = frozenset()
        self.hung: frozenset[LaneId] = frozenset()
        """The lanes that hang: their leases end if another process is alive."""
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self.failed: Exception | None = None
        """Why the heartbeat ended: its connection led to another outbox or server, or the code has a bug."""

    def start(self) -> None:
        """Start beating. The first beat registers the process."""
        self._thread.start()

    def end(self, timeout_s: float) -> None:
        """Give every lease back and record that the process has ended. Waits at most `timeout_s` for Postgres."""
        self._ended = True
        self._wanted.set()
        self._thread.join(timeout_s)

    def take_lanes(self, takes: bool) -> None:
        """Set whether this process takes part in sharing the lanes; it does not while it cannot deliver."""
        if takes != self._takes_lanes:
            self._takes_lanes = takes
            self._wanted.set()

    def _run(self) -> None:
        within_s = 2 * longest_wait_s(self._context.settings.postgres) + self._pause_s
        with self._health.loops.loop("heartbeat", within_s) as loop:
            self._keep_beating(loop)

    def _keep_beating(self, loop: Loop) -> None:
        backoff = Backoff(least_s=0.1, most_s=self._pause_s)
        while not self._ended:
            loop.turn()
            try:
                with connect(
                    self._context.settings.postgres, "publisher process", autocommit=True
                ) as connection:
                    # Before the first write: check that the connection leads to the same outbox.
                    check_unchanged(connection, self._context.outbox)
                    self._beat(connection, backoff, loop)
            # InternalError: the server is a standby that is not promoted yet and refuses writes.
            except (psycopg.OperationalError, psycopg.InternalError, UnavailableError) as error:
                if backoff.failures == 0:
                    _log.warning("heartbeat_lost", reason=str(error).strip())
                self._wait(backoff.next())
            except Exception as error:  # noqa: BLE001 - kept for the process to raise
                self.failed = error
                return

    def _beat(self, connection: psycopg.Connection[Any], backoff: Backoff, loop: Loop) -> None:
        announced: tuple[bool, frozenset[LaneId]] | None = None
        while not self._ended:
            late = frozenset((lane.epoch, lane.lane) for lane in self._health.lanes() if lane.is_late())
            # A lane hangs only if it is late at two beats: when a suspended process continues, all its lanes are late for a moment.
            self._late, self.hung = late, late & self._late
            state = self._takes_lanes, self.hung
            connection.execute(
                _PROCESSES["beat"],
                self._parameters
                | {
                    "takes_lanes": self._takes_lanes,
                    "late_epochs": [epoch for epoch, _ in sorted(self.hung)],
                    "late_lanes": [lane for _, lane in sorted(self.hung)],
                },
            )
            if state != announced:
                # So that the other processes at once give lanes to this one, or take over the lanes that it cannot deliver.
                connection.execute(_WAKEUPS["wake_publishers"])
                announced = state
            backoff.reset()
            self._health.heartbeat_written()
            loop.turn()
            self._wait(self._pause_s)
        connection.execute(_PROCESSES["end"], self._parameters)

    def _wait(self, seconds: float) -> None:
        if not self._ended:
            self._wanted.wait(seconds)
            self._wanted.clear()
