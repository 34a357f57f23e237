"""What all lanes of this process have in common."""

import threading
from dataclasses import dataclass

from db.settings import Settings
from publisher.checks import Identity
from publisher.identity import OutboxIdentity
from publisher.topics import Topics


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
    identity: Identity
    topics: Topics
    progress_topic: str
    holder: str
    stop: threading.Event
