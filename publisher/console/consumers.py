"""Reads the consumers' state of a session's outputs from their database. That database is not the outbox's, and may be slow or down."""

import threading
from collections.abc import Iterable

from publisher.trace.consumers import Consumptions, consumptions
from service.errors import UnavailableError
from service.settings import ConsoleSettings

MOST_CONNECTIONS = 2
"""Fewer than the console's own connections, so that a server that never answers leaves some for the other pages."""
_WAIT_S = 1.0
_CONNECT_TIMEOUT_S = 3


class Consumers:
    """Reads the database of `[console] consumer_dsn_file`, at most `MOST_CONNECTIONS` at a time. Thread-safe."""

    def __init__(self, settings: ConsoleSettings) -> None:
        """Opens no connection yet."""
        self._file = settings.consumer_dsn_file
        self._timeout_ms = settings.statement_timeout_ms
        self._free = threading.Semaphore(MOST_CONNECTIONS)

    @property
    def are_shown(self) -> bool:
        """Whether the settings name a database."""
        return self._file is not None

    def of(self, outbox_ids: Iterable[str]) -> Consumptions:
        """Return the state of these outputs at every consumer. Raises UnavailableError, SettingsError."""
        assert self._file is not None
        if not self._free.acquire(timeout=_WAIT_S):
            raise UnavailableError("the consumer's database still answers other pages")
        try:
            return consumptions(
                f"file://{self._file.absolute()}",
                outbox_ids,
                "publisher console",
                connect_timeout_s=_CONNECT_TIMEOUT_S,
                statement_timeout_ms=self._timeout_ms,
            )
        finally:
            self._free.release()
