"""Writes at most one log line per second for the deliveries of all lanes of this process."""

import threading
import time

import structlog

_log = structlog.get_logger()

_EVERY_S = 1.0


class DeliveryLog:
    """Counts committed transactions; `flush` writes the line when it is due. Thread-safe."""

    def __init__(self, every_s: float = _EVERY_S) -> None:
        self._every_s = every_s
        self._lock = threading.Lock()
        self._flushed_at = 0.0
        self._clear()

    def _clear(self) -> None:
        self._seqs: dict[tuple[int, int], tuple[int, int]] = {}
        self._batch = self._transactions = self._sessions = self._events = self._parked = 0

    def add(
        self, epoch: int, lane: int, seq: int, *, batch: int, sessions: int, events: int, parked: int
    ) -> None:
        """Count the transaction in row (epoch, lane, seq) of outbox.delivery, unless it only moved the cursor."""
        if not sessions and not parked:
            return
        with self._lock:
            first, last = self._seqs.get((epoch, lane), (seq, seq))
            self._seqs[epoch, lane] = min(first, seq), max(last, seq)
            self._batch = max(self._batch, batch)
            self._transactions += 1
            self._sessions += sessions
            self._events += events
            self._parked += parked

    def flush(self, *, at_once: bool = False) -> None:
        """Write the line if a transaction was counted since the last one, and that line is old enough or `at_once` is set."""
        with self._lock:
            now = time.monotonic()
            if not self._transactions or (not at_once and now - self._flushed_at < self._every_s):
                return
            line = {
                "batch": self._batch,
                "transactions": self._transactions,
                "sessions": self._sessions,
                "events": self._events,
                "lanes": len(self._seqs),
                # epoch/lane/seq, the key of outbox.delivery.
                "deliveries": [
                    f"{epoch}/{lane}/{first}" + (f"-{last}" if last != first else "")
                    for (epoch, lane), (first, last) in sorted(self._seqs.items())
                ],
            } | ({"parked": self._parked} if self._parked else {})
            self._flushed_at = now
            self._clear()
        _log.info("delivered", **line)
