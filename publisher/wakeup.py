"""One LISTEN connection for all lanes: a committed batch wakes them. The slow poll is the safety net."""

import threading
from typing import Any

import psycopg
import structlog

from db.connection import connect
from db.errors import UnavailableError
from db.settings import PostgresSettings
from db.statements import statement
from publisher.backoff import Backoff

_log = structlog.get_logger()


class Wakeup:
    """Sets every subscribed event when a batch was committed, when the connection was made anew, and at the end."""

    def __init__(self, settings: PostgresSettings, stop: threading.Event) -> None:
        self._settings = settings
        self._stop = stop
        self._subscribed: set[threading.Event] = set()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="wakeup", daemon=True)

    def start(self) -> None:
        """Start listening."""
        self._thread.start()

    def join(self) -> None:
        """Wait for the listener to end, after `stop` was set."""
        self._thread.join()

    def subscribe(self) -> threading.Event:
        """Return an event that is set whenever there may be work."""
        event = threading.Event()
        with self._lock:
            self._subscribed.add(event)
        return event

    def unsubscribe(self, event: threading.Event) -> None:
        """Forget an event."""
        with self._lock:
            self._subscribed.discard(event)

    def wake_all(self) -> None:
        """Set every event."""
        with self._lock:
            for event in self._subscribed:
                event.set()

    def _run(self) -> None:
        backoff = Backoff(least_s=0.1, most_s=5.0)
        while not self._stop.is_set():
            try:
                with connect(self._settings, "publisher wakeup", autocommit=True) as connection:
                    self._listen(connection, backoff)
            except (psycopg.Error, UnavailableError) as error:
                if backoff.failures == 0:
                    _log.warning("wakeup_lost", reason=str(error).strip())
                self._stop.wait(backoff.next())

    def _listen(self, connection: psycopg.Connection[Any], backoff: Backoff) -> None:
        connection.execute(statement("publisher", "listen"))
        backoff.reset()
        # Whatever was committed while nobody listened.
        self.wake_all()
        while not self._stop.is_set():
            for _ in connection.notifies(timeout=0.5, stop_after=1):
                self.wake_all()
