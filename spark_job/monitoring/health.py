"""The job's state, over all its attempts: its threads write it, the endpoint reads it. Nothing here waits or asks a server."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from service.observability.loops import Loop, Loops
from spark_job.monitoring.readiness import JobSnapshot, Phase

# The longest time between two turns of the main thread. A start may download Spark's jars; a running query is asked ten times a second, in
# a JVM that may be collecting garbage; its end waits for Spark, the callback and the commit, a minute each.
_START_S = 900.0
_QUERY_S = 60.0
_END_S = 240.0


class JobHealth:
    """Thread-safe: each value is replaced as a whole."""

    def __init__(self, hung_s: float = 60.0) -> None:
        """`hung_s`: see [metrics]."""
        self.loops = Loops(hung_s)
        self._main: Loop | None = None
        self._lock = threading.Lock()
        self._phase_at = self._heartbeat_at = time.monotonic()
        self._progress_at: float | None = None
        self._snapshot = JobSnapshot("starting", 0.0, 1, "", 0.0, None, "", None, 0.0, "", {})
        self.computed = -1
        """The newest Spark batch of this attempt whose tasks have ended, -1 before the first. Its commit may be under way."""
        self.committed = -1
        """The newest Spark batch of this attempt that is in the outbox, -1 before the first."""

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch the main thread, as the loop over attempts."""
        with self.loops.loop("main", _START_S) as self._main:
            yield

    def starting(self, attempt: int) -> None:
        """An attempt begins."""
        self._heartbeat_at = time.monotonic()
        self.computed, self.committed = -1, -1
        self._turn(_START_S)
        self._enter("starting", attempt=attempt, heartbeat_error="", run={})

    def running(self, run: dict[str, Any]) -> None:
        """The attempt's query begins; `run` is what its start found and decided, for the endpoint."""
        self.computed, self.committed, self._progress_at = -1, -1, None
        self._turn(_START_S)
        self._enter("running", doing="", held_back=None, run=run)

    def query_ending(self) -> None:
        """The run is to end: from here on no batch is begun."""
        self._turn(_END_S)
        self._enter("stopping")

    def standing_by(self, because: str) -> None:
        """Another run owns the outbox, and this process is ready to continue in its place."""
        self._turn(_START_S)
        self._enter("standby", because=because, held_back=None, run={})

    def owner_unknown(self, because: str) -> None:
        """A standby cannot read who owns the outbox."""
        self._turn(_START_S)
        self._enter("waiting", because=because, held_back=None, run={})

    def restarting(self, because: str, in_s: float) -> None:
        """The attempt failed; the next one begins in `in_s` seconds."""
        self._turn(in_s)
        self._enter("restarting", because=because, restarts_in_s=in_s, held_back=None)

    def stopping(self) -> None:
        """The process is to end."""
        self._turn(_END_S)
        self._enter("stopping")

    def query_polled(self) -> None:
        """The main thread has read the running query's status."""
        self._turn(_QUERY_S)

    def query_described(self, doing: str, *, between_triggers: bool) -> None:
        """Note Spark's description of the query, and whether a trigger has ended: with a batch, or because there is nothing to read.

        A batch whose commit is still under way counts as no progress yet.
        """
        self._set(doing=doing)
        if between_triggers and self.computed <= self.committed:
            self._progress_at = time.monotonic()

    def batch_computed(self, spark_batch: int) -> None:
        """A batch's tasks have ended; its commit begins."""
        self.computed = spark_batch

    def batch_committed(self, spark_batch: int) -> None:
        """A batch is in the outbox."""
        self.committed = spark_batch
        self._progress_at = time.monotonic()

    @property
    def has_committed(self) -> bool:
        """Whether a batch of this attempt is in the outbox."""
        return self.committed >= 0

    def held_back(self, reason: str | None) -> None:
        """Note why no batch is committed; None: batches are committed again."""
        self._set(held_back=reason)

    def heartbeat_written(self) -> None:
        """The heartbeat was written."""
        self._heartbeat_at = time.monotonic()
        if self._snapshot.heartbeat_error:
            self._set(heartbeat_error="")

    def heartbeat_failed(self, reason: str) -> None:
        """The heartbeat could not be written."""
        self._set(heartbeat_error=reason)

    def snapshot(self) -> JobSnapshot:
        """Return everything as of now."""
        now, progress_at = time.monotonic(), self._progress_at
        return replace(
            self._snapshot,
            phase_s=now - self._phase_at,
            progress_s_ago=None if progress_at is None else now - progress_at,
            heartbeat_s_ago=now - self._heartbeat_at,
        )

    def _enter(self, phase: Phase, **changed: Any) -> None:
        self._phase_at = time.monotonic()
        self._set(phase=phase, **changed)

    def _set(self, **changed: Any) -> None:
        with self._lock:
            self._snapshot = replace(self._snapshot, **changed)

    def _turn(self, within_s: float) -> None:
        if self._main is not None:
            self._main.turn(within_s)
