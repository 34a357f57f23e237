"""Wakes the lanes of a process through one LISTEN connection. If notifications are lost, the lanes' slow polls find the rows.

`outbox_batch`: a batch was committed. The payload `7 0,3` names the batch and the lanes that have rows; without lanes, all may have rows.
`outbox_publisher`: publishers came, went or gave lanes back, or a lane was resumed.

Any login that may connect can send both, as fast as Postgres takes them. So the listener reads at most a hundred times a second; the other
notifications wait in the server. It wakes publishers and stopped lanes, whose checks cost requests, at most twice a second.
"""

import threading
import time
from typing import Any

import psycopg
import structlog

from db.connection import connect, longest_wait_s
from db.statements import queries
from service.errors import UnavailableError
from service.lifecycle.backoff import Backoff
from service.lifecycle.threads import supervised
from service.observability.loops import Loop, Loops
from service.settings import PostgresSettings

_WAKEUPS = queries("publisher", "wakeups")

_log = structlog.get_logger()

_BATCH = "outbox_batch"
_MOST_BACKOFF_S = 5.0
_WAIT_S = 0.5
_REST_S = 0.01
"""The pause after each read."""
_PUBLISHERS_APART_S = 0.5


class Wakeup:
    """Sets the subscribed events at their notifications and after each connection."""

    def __init__(self, settings: PostgresSettings, stop: threading.Event, loops: Loops) -> None:
        self._settings = settings
        self._loops = loops
        self._stop = stop
        self._lanes: dict[threading.Event, int] = {}
        self._publishers: set[threading.Event] = set()
        self._publishers_due = False
        self._publishers_at = -_PUBLISHERS_APART_S
        self._lock = threading.Lock()
        self._thread = supervised(self._run, "wakeup", stop)

    def start(self) -> None:
        """Start listening."""
        self._thread.start()

    def join(self, timeout_s: float | None = None) -> None:
        """Wait for the listener to end, after `stop` was set."""
        self._thread.join(timeout_s)

    def subscribe(self, lane: int) -> threading.Event:
        """Return an event that is set whenever a lane may have rows."""
        event = threading.Event()
        with self._lock:
            self._lanes[event] = lane
        return event

    def subscribe_publishers(self) -> threading.Event:
        """Return an event that is set when the assignment of lanes may have to change, or a lane was resumed."""
        event = threading.Event()
        with self._lock:
            self._publishers.add(event)
        return event

    def unsubscribe(self, event: threading.Event) -> None:
        """Forget an event."""
        with self._lock:
            self._lanes.pop(event, None)
            self._publishers.discard(event)

    def wake_all(self) -> None:
        """Set every event."""
        with self._lock:
            for event in (*self._lanes, *self._publishers):
                event.set()

    def take(self, channel: str, payload: str) -> None:
        """Set the events that a notification is for. Any login may send a notification, with any text."""
        _, named, lanes = payload.partition(" ")
        if channel != _BATCH:
            self._publishers_due = True
            self._wake_publishers()
            return
        with self._lock:
            if not named:
                events = list(self._lanes)
            else:
                woken = set(lanes.split(","))
                events = [event for event, lane in self._lanes.items() if str(lane) in woken]
        for event in events:
            event.set()

    def _wake_publishers(self) -> None:
        """Set the events of publishers if a notification asks for it and the last time was long enough ago."""
        now = time.monotonic()
        if self._publishers_due and now >= self._publishers_at + _PUBLISHERS_APART_S:
            self._publishers_due, self._publishers_at = False, now
            with self._lock:
                for event in self._publishers:
                    event.set()

    def _run(self) -> None:
        backoff = Backoff(least_s=0.1, most_s=_MOST_BACKOFF_S)
        with self._loops.loop("wakeup", longest_wait_s(self._settings) + _MOST_BACKOFF_S) as loop:
            while not self._stop.is_set():
                loop.turn()
                self._listen_once(backoff, loop)

    def _listen_once(self, backoff: Backoff, loop: Loop) -> None:
        """Listen until the connection is lost, or `stop` is set."""
        try:
            with connect(self._settings, "publisher wakeup", autocommit=True) as connection:
                self._listen(connection, backoff, loop)
        except (psycopg.Error, UnavailableError) as error:
            if backoff.failures == 0:
                _log.warning("wakeup_lost", reason=str(error).strip())
            self._stop.wait(backoff.next())

    def _listen(self, connection: psycopg.Connection[Any], backoff: Backoff, loop: Loop) -> None:
        connection.execute(_WAKEUPS["listen_to_batches"])
        connection.execute(_WAKEUPS["listen_to_publishers"])
        backoff.reset()
        # For batches that were committed while nobody listened.
        self.wake_all()
        while not self._stop.is_set():
            loop.turn()
            heard = False
            for news in connection.notifies(timeout=_WAIT_S, stop_after=1):
                heard = True
                self.take(news.channel, news.payload)
            self._wake_publishers()
            if heard:
                self._stop.wait(_REST_S)
