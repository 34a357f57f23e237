"""The context that all deliveries of one process share."""

import threading
from dataclasses import dataclass, field

import structlog

from publisher.delivery.handover import HandoverTurns
from publisher.delivery.large_row_turns import LargeRowTurns
from publisher.kafka.topics import Topics
from publisher.monitoring.delivery_log import DeliveryLog
from publisher.outbox.identity import OutboxIdentity
from publisher.protocol.history_check import Identity
from service.settings import Settings

_log = structlog.get_logger()


class Timelines:
    """Logs each promotion of the server once, when its timeline is new. It stops nothing: each lane checks itself that no delivery was
    lost."""

    def __init__(self, recorded: int) -> None:
        """`recorded`: the timeline of `outbox.identity`."""
        self._recorded = recorded
        self._known = {recorded}
        self._lock = threading.Lock()

    def notice(self, now: int) -> None:
        """Log the timeline of a new connection, if it is new."""
        with self._lock:
            if now in self._known:
                return
            self._known.add(now)
        _log.warning("postgres_promoted", recorded=self._recorded, now=now)


@dataclass(frozen=True, slots=True)
class Context:
    """The source and the target of the rows. `settings.kafka` leads to the target cluster, and `topics` describes that cluster's topics."""

    settings: Settings
    outbox: OutboxIdentity
    """The identity of the outbox as bound at the start of the process."""
    timelines: Timelines
    identity: Identity
    topics: Topics
    progress_topic: str
    holder: str
    stop: threading.Event
    turns: HandoverTurns = field(default_factory=HandoverTurns)
    large_row_turns: LargeRowTurns = field(default_factory=LargeRowTurns)
    deliveries: DeliveryLog = field(default_factory=DeliveryLog)

    def give_up(self) -> bool:
        """Return whether to stop waiting for a server, because the process is to end."""
        return self.stop.is_set()
