"""Works through one replay: take over, then read, produce, commit, mirror until it is done, stopped, paused or cancelled."""

import threading
import time
from collections.abc import Callable
from enum import StrEnum

import psycopg
import structlog
from confluent_kafka import KafkaException

from db.errors import UnavailableError
from db.fault_points import reach
from db.settings import Settings
from publisher.backoff import Backoff
from publisher.cursor import ChunkLimits, Cursor
from publisher.identity import OutboxIdentity
from publisher.replay.admission import Admitted, ReplayAdmission, StartOverError
from publisher.replay.errors import ReplayStoppedError, Why
from publisher.replay.pace import Pace, Speed
from publisher.replay.progress import ReplayProgress, progress_key, progress_partition
from publisher.replay.reader import ReplayChunk, ReplayReader
from publisher.replay.sending import Prepared, ProgressPlace, RefusedError, Sender
from publisher.replay.session import Session, StateChangedError
from publisher.replay.store import Replay
from publisher.replay.target import Target, unauthorised

_log = structlog.get_logger()

# A consumer of the same partition sees no live event behind a replay's open transaction, so these are short.
_MOST_ROWS = 250
_MOST_BYTES = 1_000_000
_PATIENCE_S = 300.0


class End(StrEnum):
    """Why `run` returned."""

    DONE = "done"
    CHANGED = "changed"  # paused, cancelled or finished by another process
    INTERRUPTED = "interrupted"


Progressed = Callable[[ReplayProgress], None]


class Runner:
    """One process's work on one replay."""

    def __init__(
        self,
        settings: Settings,
        outbox: OutboxIdentity,
        replay: Replay,
        target: Target,
        stop: threading.Event,
        *,
        holder: str,
        paused_too: bool = False,
        skip_refused: bool = False,
        progressed: Progressed = lambda _: None,
    ) -> None:
        """`stop` ends `run` at a transaction boundary. `paused_too`: a paused replay is resumed.

        `skip_refused`: rows that the target refuses for themselves are counted and left out; else they stop the replay.
        """
        self._settings = settings
        self._outbox = outbox
        self._replay = replay
        self._target = target
        self._stop = stop
        self._holder = holder
        self._paused_too = paused_too
        self._progressed = progressed
        self._admission = ReplayAdmission(settings, replay, target, skip_refused=skip_refused)
        publisher = settings.publisher
        self._most_rows = min(publisher.transaction_sessions, _MOST_ROWS)
        self._limits = ChunkLimits(self._most_rows, min(publisher.transaction_bytes, _MOST_BYTES))
        self._pace = Pace(replay.events_per_second)
        self._speed = Speed(time.monotonic())
        self._one_by_one = False
        self._session: Session | None = None

    def run(self) -> End:
        """Work until the end. Raises ReplayStoppedError, LeaseLostError, LaneStoppedError, UnavailableError."""
        backoff = Backoff(least_s=0.1, most_s=10.0)
        worked_at = time.monotonic()
        while not self._stop.is_set():
            try:
                session = self._session or self._open()
                end = self._step(session)
                if end is not None:
                    self._close(None)
                    return end
                worked_at = time.monotonic()
                backoff.reset()
            except StartOverError:
                self._discard()
            except StateChangedError:
                self._close(None)
                return End.CHANGED
            except (KafkaException, psycopg.Error, UnavailableError) as error:
                refused = unauthorised(error)
                if refused is not None:
                    self._close(str(refused))
                    raise refused from error
                self._discard()
                self._wait_or_give_up(error, backoff, worked_at)
            except Exception as error:
                self._close(str(error) if isinstance(error, ReplayStoppedError) else None)
                raise
        self._close(None)
        return End.INTERRUPTED

    def _open(self) -> Session:
        self._admission.begin()
        session = Session(
            self._settings,
            self._outbox,
            self._replay,
            self._target,
            self._holder,
            paused_too=self._paused_too,
            batch_bytes=1 if self._one_by_one else self._admission.batch_bytes,
            claimed=self._resumed,
        )
        self._session = session
        place = ProgressPlace(
            self._target.progress_topic,
            progress_partition(self._replay.replay_id),
            progress_key(self._replay.replay_uuid),
        )
        if session.producer is None:
            raise RuntimeError("an open session has a producer")
        self._sender = Sender(session.producer, place, self._stop, watched=self._one_by_one)
        self._reader = ReplayReader(self._replay, self._limits, self._admission.outgoing, session.start)
        if session.progress is not None:
            self._progressed(session.progress)
        return session

    def _resumed(self) -> None:
        # Paused again later, it stays so: also where Kafka does not answer yet, and the next attempt claims anew.
        self._paused_too = False

    def _step(self, session: Session) -> End | None:
        """Do one transaction; return why it is over, None where it goes on."""
        if not self._paced(session):
            return End.INTERRUPTED
        progress = session.progress
        if session.start >= Cursor(self._replay.to_batch):
            return self._finish(session)
        chunk = self._reader.read(
            session.connection,
            session.start,
            None if progress is None else progress.commit_id,
            self._pace.rows(self._replay.events_total / max(1, self._replay.rows_total), self._most_rows),
            self._pace.rate,
        )
        reach("replay.after_read")
        admitted = self._admission.admit(chunk.rows, {} if progress is None else progress.topics)
        began = time.monotonic()
        done = self._sum(session, chunk, admitted)
        self._send(admitted.prepared, done)
        events = done.events - (progress.events if progress is not None else 0)
        self._pace.sent(events, began)
        state = session.moved(done, self._speed.sent(events, time.monotonic()))
        reach("replay.after_mirror")
        self._progressed(done)
        if state != "running":
            raise StateChangedError
        if self._one_by_one:
            # What Kafka refused before is through or left out: full batches again.
            self._one_by_one = False
            raise StartOverError
        if session.link.has_broken:
            # Its commit may have been sent twice, and the first one arrive yet: a new epoch makes it void.
            raise StartOverError
        return None

    def _paced(self, session: Session) -> bool:
        """Wait until the rate allows the next transaction, holding the lease; False once stopped."""
        while (wait := self._pace.wait_s(time.monotonic())) > 0:
            if self._stop.wait(min(wait, 1.0, self._settings.publisher.lease_s / 3)):
                return False
            if session.lease.renew(session.connection) != "running":
                raise StateChangedError
        return not self._stop.is_set()

    def _finish(self, session: Session) -> End:
        progress = session.progress
        sent = (0, 0) if progress is None else (progress.rows, progress.skipped)
        missing = self._replay.rows_total - sum(sent)
        reason = None
        if missing:
            reason = (
                f"{Why.ROWS_GONE}: {self._replay.rows_total} rows were counted when it was made, {sent[0]} were sent and {sent[1]} "
                "left out: rows were deleted or parked meanwhile"
            )
        reach("replay.before_done")
        if not session.lease.finish(session.connection, reason):
            raise StateChangedError
        return End.DONE

    def _sum(
        self,
        session: Session,
        chunk: ReplayChunk,
        admitted: Admitted,
    ) -> ReplayProgress:
        before = session.progress
        return ReplayProgress(
            outbox_uuid=self._outbox.outbox_uuid,
            cluster_id=self._target.cluster_id,
            replay_uuid=self._replay.replay_uuid,
            seq=(before.seq if before is not None else 0) + 1,
            cursor=chunk.end,
            commit_id=chunk.commit_id,
            rows=(before.rows if before is not None else 0) + len(admitted.prepared),
            events=(before.events if before is not None else 0) + admitted.events,
            skipped=(before.skipped if before is not None else 0) + admitted.left_out,
            topics=admitted.topic_ids,
        )

    def _send(self, prepared: list[Prepared], done: ReplayProgress) -> None:
        try:
            self._sender.send(prepared, done.encode())
        except RefusedError as error:
            if self._one_by_one and not error.rows:
                raise ReplayStoppedError(
                    Why.ROW_REFUSED,
                    f"Kafka refuses a record, but no row is to blame: {error}. Set this host's clock right, and the limits of topic "
                    f"{self._target.progress_topic}; then `publisher replay go-on {self._replay.replay_id}`",
                ) from error
            self._one_by_one = not self._one_by_one
            self._admission.refused |= error.rows
            raise StartOverError from error

    def _wait_or_give_up(self, error: Exception, backoff: Backoff, worked_at: float) -> None:
        reason = f"Kafka: {error.args[0].str()}" if isinstance(error, KafkaException) else str(error).strip()
        if time.monotonic() - worked_at > _PATIENCE_S:
            raise UnavailableError(
                f"nothing was sent for {_PATIENCE_S:.0f} s: {reason}. The replay keeps its place: `publisher replay go-on "
                f"{self._replay.replay_id}`"
            ) from error
        # The first may be nothing: a topic that was just made has no leader for a moment.
        if backoff.failures == 1 and not self._stop.is_set():
            _log.warning("retrying", replay=self._replay.replay_id, reason=reason)
        self._stop.wait(backoff.next())

    def _discard(self) -> None:
        if self._session is not None:
            session, self._session = self._session, None
            session.discard()

    def _close(self, reason: str | None) -> None:
        if self._session is not None:
            session, self._session = self._session, None
            session.release(reason)
