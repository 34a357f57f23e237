"""A replay taken over: lease, fenced producer, and the place from which it goes on. The protocol is the lanes' (lane.py)."""

from collections.abc import Callable
from typing import Any

import psycopg
from confluent_kafka import Producer

from db.connection import connect
from db.errors import UnavailableError
from db.fault_points import reach
from db.settings import Settings
from publisher import clients
from publisher.cursor import Cursor
from publisher.deliveries import commit_id_at
from publisher.identity import OutboxIdentity, check_unchanged, read_identity
from publisher.lease import LeaseLostError
from publisher.link import Link
from publisher.progress_reader import records_backwards
from publisher.replay.errors import ReplayStoppedError, Why
from publisher.replay.progress import ReplayProgress, check_ledger, decide, progress_key, progress_partition
from publisher.replay.store import Replay, ReplayLease, load
from publisher.replay.target import Target
from publisher.takeover import initialise

# Until the broker ends a killed replay's open transaction, consumers of its topics wait: live events too.
_MOST_TRANSACTION_TIMEOUT_MS = 15_000


class StateChangedError(Exception):
    """The replay does not run any more: somebody paused, cancelled or finished it."""


class Session:
    """One attempt: opened once, discarded after any failure. Not thread-safe."""

    def __init__(
        self,
        settings: Settings,
        outbox: OutboxIdentity,
        replay: Replay,
        target: Target,
        holder: str,
        *,
        paused_too: bool,
        batch_bytes: int | None,
        claimed: Callable[[], None] = lambda: None,
    ) -> None:
        """Takes over and finds the place, steps 1 to 4. `claimed` is called once the replay is this session's.

        Raises as `Lane.open` does, and StateChangedError, ReplayStoppedError.
        """
        self._settings = settings
        self._outbox = outbox
        self._replay = replay
        self._target = target
        self._lease: ReplayLease | None = None
        self.progress: ReplayProgress | None = None
        self.connection = connect(settings.postgres, f"publisher replay {replay.replay_id}", autocommit=True)
        self.producer: Producer | None = None
        self.link = Link()
        try:
            self._open(holder, paused_too, batch_bytes, claimed)
        except ReplayStoppedError as error:
            self.release(str(error))
            raise
        except BaseException:
            self.discard()
            raise

    def _open(
        self, holder: str, paused_too: bool, batch_bytes: int | None, claimed: Callable[[], None]
    ) -> None:
        # 1. The lease, for liveness only; of the same outbox as at the start.
        check_unchanged(self.connection, self._outbox)
        reach("replay.before_lease")
        self._lease = self._claim(holder, paused_too)
        claimed()
        reach("replay.after_lease")
        # 2. Fence any older runner and end its open transaction. Only then is Kafka's word final.
        self._target.check_cluster(self._replay.replay_id, self._replay.target_cluster_id)
        self._target.ensure_progress(self._replay.replay_id, create=self.lease.seq == 0)
        self.producer = self._init_producer(batch_bytes)
        reach("replay.after_fencing")
        # 3. and 4. What Kafka says, and whether Postgres tells the same history.
        self.progress = self._read_progress()
        decide(
            self._replay.replay_id,
            self._outbox.outbox_uuid,
            self._target.cluster_id,
            self.progress,
            self.lease.seq,
            self.lease.cursor,
        )
        if self.progress is None:
            return
        at = self.progress.cursor
        check_ledger(
            self._replay.replay_id, at, self.progress.commit_id, commit_id_at(self.connection, at.batch_id)
        )
        if self.progress.seq > self.lease.seq:
            reach("replay.before_filling")
            self.lease.mirror(self.connection, self.progress, None)

    def _claim(self, holder: str, paused_too: bool) -> ReplayLease:
        replay_id, lease_s = self._replay.replay_id, self._settings.publisher.lease_s
        lease = ReplayLease.claim(self.connection, replay_id, holder, lease_s, paused_too=paused_too)
        if lease is not None:
            return lease
        found = load(self.connection, replay_id)
        if found.state != "running":
            raise StateChangedError
        if found.lease_holder == holder:
            raise UnavailableError("Postgres has not noticed yet that this process lost its connection")
        raise LeaseLostError(
            f"replay {replay_id} is worked on by {found.lease_holder} already. `publisher replay pause {replay_id}` ends that at a "
            "transaction boundary"
        )

    def _init_producer(self, batch_bytes: int | None) -> Producer:
        publisher = self._settings.publisher
        prefix = self._outbox.transactional_id_prefix or publisher.transactional_id_prefix
        producer = clients.lane_producer(
            self._target.kafka,
            f"{prefix}-{self._outbox.outbox_uuid}-replay-{self._replay.replay_id}",
            min(publisher.transaction_timeout_ms, _MOST_TRANSACTION_TIMEOUT_MS),
            batch_bytes,
            self.link.logger,
        )
        initialise(producer, self._target.kafka.request_timeout_s, lambda: False)
        producer.poll(0)  # serves the log
        self.link.forget()
        return producer

    def _read_progress(self) -> ReplayProgress | None:
        partition = progress_partition(self._replay.replay_id)
        high_watermark = self._target.high_watermark(partition)
        consumer = clients.progress_consumer(self._target.kafka)
        try:
            key = progress_key(self._replay.replay_uuid)
            records = records_backwards(
                consumer,
                self._target.progress_topic,
                partition,
                high_watermark,
                self._target.kafka.request_timeout_s,
                lambda: False,
            )
            value = next((record.value for record in records if record.key == key), None)
        finally:
            consumer.close()
        try:
            return None if value is None else ReplayProgress.decode(value)
        except ValueError as error:
            raise ReplayStoppedError(
                Why.OTHER_OUTBOX,
                f"{self._target.progress_topic}[{partition}]: {error}. Something else writes to this topic, or a newer publisher did; use "
                "that version",
            ) from error

    @property
    def lease(self) -> ReplayLease:
        """The lease."""
        if self._lease is None:
            raise RuntimeError("an open session has a lease")
        return self._lease

    @property
    def start(self) -> Cursor:
        """Where it goes on."""
        return self.progress.cursor if self.progress is not None else Cursor(self._replay.from_batch - 1)

    def moved(self, progress: ReplayProgress, rate: float) -> str:
        """Record a committed transaction in Postgres; return the replay's state. Raises LeaseLostError."""
        state = self.lease.mirror(self.connection, progress, rate)
        self.progress = progress
        return state

    def release(self, reason: str | None) -> None:
        """Give the lease back and end. Never raises: the lease ends with the connection anyway."""
        try:
            if not self.connection.closed and self._lease is not None:
                self._lease.release(self.connection, reason)
        except psycopg.Error:
            pass
        self.discard()

    def discard(self) -> None:
        """Throw everything away, whatever it was doing."""
        if self.producer is not None:
            producer, self.producer = self.producer, None
            producer.purge()
        self.connection.close()


def outbox_of(connection: psycopg.Connection[Any]) -> OutboxIdentity:
    """Return which outbox a connection leads to, once it is found to be on its own server. Raises LaneStoppedError, SchemaError."""
    return check_unchanged(connection, read_identity(connection))
