"""Consumes outputs exactly once: the loop and the order of its steps.

1. Fetch, and cut the records into runs. A run has records of one partition, with each outbox-id at most once. For each run:
2. Ask Kafka for the topic's id; step 6 reads the answer.
3. Begin a transaction and lock the position (`Store.begin`). Drop records below the position: another process has consumed them.
4. Claim the outbox-ids. Drop an output as a duplicate if its id is known with the same or a greater revision.
5. Hand out the other outputs, one after another. The loop's body works in this transaction.
6. Compare the topic's id with the position's: the records must be from the topic for which the position was stored, not from a new
   topic of the same name.
7. Move the position and commit. Nothing takes effect before the commit.

A failure before the commit undoes everything. After a failure in the commit, the next start reads the outcome from the database.
"""

import logging
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from outbox_consumer.outputs import NamedPartition, Output, runs
from outbox_consumer.partitions import Partitions, Start
from outbox_consumer.store import Connection, Store, source_of

_MOST_OUTPUTS = 500
# The consumption of one fetch should take about this long, so that Kafka sees that the process lives, and locks are short.
_FETCHED_S = 0.5
_PAUSE_S, _MOST_PAUSE_S = 0.1, 5.0
_FORGET_S = 3_600.0
_MAX_POLL_MS = 300_000

_log = logging.getLogger("outbox_consumer")


def consume(
    connection: Connection,
    kafka: Mapping[str, Any],
    topics: Sequence[str],
    *,
    start: Start = "earliest",
    attempts: int = 5,
    remember: timedelta | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[Output]:
    """Hand out each output once. Only the loop commits: the body's statements on `connection` commit together with the position.

    `kafka`: librdkafka's options; `group.id` is the consumer's name. `start`: where a topic without a position begins. `attempts`: how
    often an output whose block (`with output:`) raises is handed out, alone, before it is set aside. `remember`: how long ids are kept,
    None: for ever. `stop`: called between transactions; true ends the loop. Raises ConsumerError, KafkaException, and the connection's
    errors.
    """
    idle_ms = int(kafka.get("max.poll.interval.ms", _MAX_POLL_MS)) // 2
    store = Store(connection, str(kafka.get("group.id", "")), idle_ms)
    loop = Loop(store, Partitions(store, kafka, topics, start), attempts, remember, stop)
    yield from loop.run()


def retry(connection: Connection, consumer: str) -> Iterator[Output]:
    """Hand out the set-aside outputs once more, each in a separate transaction. `consumer`: the `group.id`.

    An output whose block (`with output:`) raises stays set aside. An output that has been consumed meanwhile, from a replay, is removed.
    """
    store = Store(connection, consumer)
    store.prepare()
    with _rolled_back(store):
        for letter in store.letters():
            output = store.take(letter)
            if output is not None:
                claimed = store.claim(output.named_partition, [output], retried=True)
                if output.outbox_id is None or output.outbox_id in claimed:
                    output.replaces = claimed.get(output.outbox_id) if output.outbox_id else None
                    yield output
                if output.error is not None:
                    _log.warning(
                        "%s/%d stays set aside: %r", output.named_partition, output.offset, output.error
                    )
                    store.rollback()
                    continue
                store.discard(letter)
            store.commit()


class Loop:
    """One member of the group. Call `run` only once."""

    def __init__(
        self,
        store: Store,
        partitions: Partitions,
        attempts: int,
        remember: timedelta | None,
        stop: Callable[[], bool],
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._store = store
        self._partitions = partitions
        self._attempts = attempts
        self._remember = remember
        self._stop = stop
        self._pause = pause
        self._most = 1
        self._forgot = float("-inf")

    def run(self) -> Iterator[Output]:
        """Hand out outputs until `stop` returns true."""
        try:
            with _rolled_back(self._store):
                self._store.prepare()
                while not self._stop():
                    self._forget()
                    outputs = self._partitions.fetch(self._most)
                    began = time.monotonic()
                    for run in runs(outputs):
                        # After an unfinished run, consuming the next one would leave a gap.
                        if not (yield from self._consume(run)):
                            return
                    self._adapt(len(outputs), time.monotonic() - began)
                    for partition, end in self._partitions.settled().items():
                        self._settle(partition, end)
        finally:
            self._partitions.close()

    def _consume(self, run: list[Output]) -> Generator[Output, None, bool]:
        """Hand out a run until it is consumed or set aside; return False if the loop is stopped before that.

        After a failure, the outputs before the failed one are consumed first, and then that output alone.
        """
        failures = 0
        count = len(run)
        while run:
            failed = yield from self._transaction(run[:count])
            if failed is None:
                run, failures = run[count:], 0
                count = len(run)
            elif failed > 0:
                count = failed
            else:
                failures, count = failures + 1, 1
                if failures >= self._attempts:
                    self._set_aside(run[0])
                    run, failures = run[1:], 0
                    count = len(run)
                elif self._stop():
                    return False
                else:
                    self._pause(min(_PAUSE_S * 2**failures, _MOST_PAUSE_S))
        return True

    def _transaction(self, run: list[Output]) -> Generator[Output, None, int | None]:
        """Consume a run and return None. If the block of an output raises, consume nothing and return the output's index."""
        partition = run[0].named_partition
        answer = self._partitions.ask_topic(partition.topic)
        position = self._store.begin(partition)
        self._partitions.check(partition, position)
        fresh = [output for output in run if output.offset >= position.next_offset]
        if not fresh:
            self._store.rollback()
            return None
        claimed = self._store.claim(partition, fresh)
        forgotten = self._store.forgotten(
            output.outbox_id for output in fresh if output.replay is not None and output.outbox_id is not None
        )
        again = 0
        for output in fresh:
            output.error = output.replaces = None
        for output in fresh:
            if output.outbox_id is not None:
                if output.outbox_id not in claimed:
                    again += 1
                    continue
                output.replaces = claimed[output.outbox_id]
                if output.replaces is None and _is_forgotten(output, forgotten):
                    self._store.unclaim(output.outbox_id)
                    output.unreadable = (
                        "the consumer no longer knows whether it consumed this replayed output"
                    )
            if output.unreadable is not None:
                _log.error("%s/%d is set aside: %s", partition, output.offset, output.unreadable)
                self._store.set_aside(output, position.topic_id, output.unreadable)
                continue
            yield output
            if output.error is not None:
                _log.warning("%s/%d: its block raised %r", partition, output.offset, output.error)
                self._store.rollback()
                return run.index(output)
        self._partitions.confirm(partition, position, answer)
        self._commit(partition, run[-1].offset + 1, run[-1].leader_epoch)
        if again:
            _log.info("%s: %d of %d outputs were consumed before", partition, again, len(fresh))
        return None

    def _set_aside(self, output: Output) -> None:
        answer = self._partitions.ask_topic(output.topic)
        position = self._store.begin(output.named_partition)
        if output.offset < position.next_offset:
            self._store.rollback()
            return
        self._store.set_aside(output, position.topic_id, f"{type(output.error).__name__}: {output.error}")
        self._partitions.confirm(output.named_partition, position, answer)
        self._commit(output.named_partition, output.offset + 1, output.leader_epoch)
        _log.error(
            "%s/%d was set aside after %d attempts", output.named_partition, output.offset, self._attempts
        )

    def _settle(self, partition: NamedPartition, end: int) -> None:
        position = self._store.begin(partition)
        self._partitions.check(partition, position)
        self._commit(partition, max(end, position.next_offset), position.leader_epoch)

    def _commit(self, partition: NamedPartition, next_offset: int, leader_epoch: int | None) -> None:
        self._store.advance(partition, next_offset, leader_epoch)
        self._store.commit()
        self._partitions.passed(partition, next_offset, leader_epoch)

    def _adapt(self, count: int, took_s: float) -> None:
        """Halve the size of a fetch if its consumption takes long, and double it if it does not."""
        if took_s > 2 * _FETCHED_S:
            self._most = max(1, count // 2)
        elif took_s < _FETCHED_S and count == self._most:
            self._most = min(_MOST_OUTPUTS, self._most * 2)

    def _forget(self) -> None:
        if self._remember is not None and time.monotonic() - self._forgot > _FORGET_S:
            self._store.forget(datetime.now(UTC) - self._remember)
            self._forgot = time.monotonic()


@contextmanager
def _rolled_back(store: Store) -> Iterator[None]:
    """Roll back the open transaction if an exception ends the loop; if that fails, too, the exception gets a note."""
    try:
        yield
    except BaseException as left:
        try:
            store.rollback()
        except Exception as error:  # noqa: BLE001  # the first error says more
            left.add_note(f"the rollback failed, too: {error}")
        raise


def _is_forgotten(output: Output, forgotten: Mapping[str, int]) -> bool:
    if output.replay is None or output.outbox_id is None:
        return False
    return output.outbox_id.end_offset <= forgotten.get(source_of(output.outbox_id), -1)
