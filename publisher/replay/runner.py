"""Runs one replay, and opens it again after each failure, until it is done, stopped, paused or cancelled."""

import time
from enum import StrEnum

import psycopg
import structlog
from confluent_kafka import KafkaException

from publisher.delivery.context import Context
from publisher.delivery.sender import StepOutcome
from publisher.protocol.stop_reasons import StartOverError, StoppedError
from publisher.replay.delivery import ReplayDelivery, StateChangedError
from publisher.replay.target import explained
from service.errors import UnavailableError, reason_of
from service.lifecycle.backoff import Backoff
from service.lifecycle.tracebacks import release_frames

_log = structlog.get_logger()

_PATIENCE_S = 300.0


class End(StrEnum):
    """Why `run` returned."""

    DONE = "done"
    CHANGED = "changed"  # paused, cancelled or finished by another process
    INTERRUPTED = "interrupted"


def run(context: Context, delivery: ReplayDelivery, replay_id: int) -> End:
    """Work until the replay ends, or until `context.stop` ends it at a transaction boundary.

    Raises StoppedError, LeaseLostError, UnavailableError.
    """
    # Every log line has the replay's number and uuid; its records have the uuid in the header `outbox-replay`.
    with structlog.contextvars.bound_contextvars(replay=replay_id, replay_uuid=str(delivery.replay_uuid)):
        return _run(context, delivery, replay_id)


def _run(context: Context, delivery: ReplayDelivery, replay_id: int) -> End:
    backoff = Backoff(least_s=0.1, most_s=10.0)
    worked_at = time.monotonic()
    reason: str | None = None
    is_open = False
    try:
        while not context.stop.is_set():
            try:
                if not is_open:
                    delivery.open()
                    is_open = True
                if delivery.run_once() is StepOutcome.DONE:
                    return End.DONE
                worked_at = time.monotonic()
                backoff.reset()
            except StartOverError:
                delivery.discard()
                is_open = False
            except (KafkaException, psycopg.Error, UnavailableError, StoppedError) as error:
                found = explained(error, context)
                if isinstance(found, StoppedError):
                    reason = str(found)
                    raise found from error
                delivery.discard()
                is_open = False
                release_frames(found)
                _wait_or_give_up(context, found, replay_id, backoff, max(worked_at, delivery.rested_at))
    except StateChangedError:
        return End.CHANGED
    finally:
        delivery.release(reason)
    return End.INTERRUPTED


def _wait_or_give_up(
    context: Context, error: Exception, replay_id: int, backoff: Backoff, worked_at: float
) -> None:
    """Wait for the next attempt, or raise. `worked_at`: when the replay last sent rows, or waited because of its rate."""
    reason = f"Kafka: {error.args[0].str()}" if isinstance(error, KafkaException) else reason_of(error)
    if time.monotonic() - worked_at > _PATIENCE_S:
        raise UnavailableError(
            f"nothing was sent for {_PATIENCE_S:.0f} s: {reason}. The replay keeps its place: `publisher replay go-on "
            f"{replay_id}`"
        ) from error
    # The first failure is not logged, because a new topic has no leader for a moment.
    if backoff.failures == 1 and not context.stop.is_set():
        _log.warning("retrying", replay=replay_id, reason=reason)
    context.stop.wait(backoff.next())
