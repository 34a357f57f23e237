"""What all lanes of this process have in common."""

import threading
from dataclasses import dataclass

import structlog

from db.settings import Settings
from publisher.checks import Identity
from publisher.identity import OutboxIdentity
from publisher.topics import Topics

_log = structlog.get_logger()


class Timelines:
    """Says once of each new timeline of the server that it was promoted. No stop: each lane proves that nothing delivered was lost."""

    def __init__(self, recorded: int) -> None:
        """`recorded`: the timeline of `outbox.identity`."""
        self._recorded = recorded
        self._known = {recorded}
        self._lock = threading.Lock()

    def notice(self, now: int) -> None:
        """Tell of the timeline that a new connection leads to."""
        with self._lock:
            if now in self._known:
                return
            self._known.add(now)
        _log.warning("postgres_promoted", recorded=self._recorded, now=now)


class StartOverError(Exception):
    """Nothing is wrong, but the lane must be opened again with another producer."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """A period with one lane count: the batches from `from_batch` on."""

    epoch: int
    from_batch: int
    lanes: int


@dataclass(frozen=True, slots=True)
class Shared:
    """What all lanes of this process have in common."""

    settings: Settings
    outbox: OutboxIdentity
    """As it was bound at the start of the process."""
    timelines: Timelines
    identity: Identity
    topics: Topics
    progress_topic: str
    holder: str
    stop: threading.Event
