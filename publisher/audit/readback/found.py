"""Reads the output topics back: every committed record below the ends, as `Found` in buckets. Continues where a killed audit was."""

import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from publisher.audit.readback import state as states
from publisher.audit.readback.digest import (
    FOUND,
    NONE,
    NOT_REPLAYED,
    bucket_of,
    content_of,
    identity_of,
    is_own,
    short_hash,
)
from publisher.audit.readback.spill import Spill
from publisher.audit.readback.state import AuditState
from publisher.audit.readback.topics import unavailable
from publisher.kafka.clients import progress_consumer, reading
from service.errors import UnavailableError
from service.record_headers import headers_of
from service.settings import Settings

FETCH_MESSAGES = 10_000
SAVE_S = 5.0
_CREATE_TIME = 1

Advance = Callable[[int], None]
"""Called with the number of offsets that were passed since the last call."""


class FoundReader:
    """Reads each partition from `state.next_offsets` to `state.ends` and keeps what it finds in `spill`."""

    def __init__(self, settings: Settings, state: AuditState, folder: Path, spill: Spill) -> None:
        self._settings = settings
        self._state = state
        self._folder = folder
        self._spill = spill
        self._topics = {name: number for number, name in enumerate(state.topics)}
        self._places = {place.encode(): number for number, place in enumerate(state.places)}
        self._open = {
            (topic, partition)
            for topic, ends in enumerate(state.ends)
            for partition, end in ends.items()
            if state.next_offsets[topic][partition] < end
        }
        # Beyond this, an open transaction below the ends is none that Kafka would still wait for.
        self._patience_s = settings.publisher.transaction_timeout_ms / 1000 + settings.kafka.request_timeout_s

    def run(self, advance: Advance) -> None:
        """Read everything. Raises UnavailableError when Kafka stops answering."""
        consumer = progress_consumer(self._settings.kafka)
        try:
            consumer.assign(
                [
                    TopicPartition(
                        self._state.topics[topic], int(partition), self._state.next_offsets[topic][partition]
                    )
                    for topic, partition in sorted(self._open)
                ]
            )
            with reading(self._settings.kafka, *self._state.topics):
                self._read(consumer, advance)
        except KafkaException as error:
            raise unavailable(self._settings.kafka, error) from error
        finally:
            consumer.close()
        self._save()

    def _read(self, consumer: Consumer, advance: Advance) -> None:
        saved = moved = time.monotonic()
        while self._open:
            messages = consumer.consume(FETCH_MESSAGES, timeout=0.5)
            now = time.monotonic()
            if messages:
                moved = now
                advance(self.take(consumer, messages))
            elif now - moved > self._patience_s:
                raise UnavailableError(
                    f"{len(self._open)} partitions could not be read to their ends for {self._patience_s:.0f} s: "
                    f"{self._where()}. A transaction is open there, or Kafka does not answer"
                )
            if now - saved > SAVE_S:
                self._save()
                saved = now

    def take(self, consumer: Consumer, messages: list[Message]) -> int:
        """Keep what was fetched; return how many offsets it led on."""
        state, passed = self._state, 0
        reached: dict[tuple[int, str], int] = {}
        for message in messages:
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                # It may be of no topic at all.
                raise KafkaException(error)
            place = (self._topics[message.topic() or ""], str(message.partition()))
            offset = message.offset() or 0
            if error is not None:
                # Reported at the position, past commit markers and aborted records too.
                reached[place] = max(offset, reached.get(place, 0))
                continue
            if offset < state.ends[place[0]][place[1]]:
                self._keep(place[0], message, offset)
            reached[place] = offset + 1
        done = []
        for place, position in reached.items():
            if place not in self._open:
                continue
            topic, partition = place
            end = state.ends[topic][partition]
            former = state.next_offsets[topic][partition]
            state.next_offsets[topic][partition] = max(former, min(position, end))
            passed += state.next_offsets[topic][partition] - former
            if position >= end:
                self._open.discard(place)
                done.append(TopicPartition(state.topics[topic], int(partition)))
        if done:
            consumer.incremental_unassign(done)
        return passed

    def _keep(self, topic: int, message: Message, offset: int) -> None:
        outbox_id, revision, replay, own = b"", 0, NOT_REPLAYED, []
        for header in headers_of(message):
            name, value = header
            if is_own(name):
                own.append(header)
            elif name == "outbox-id":
                outbox_id = value or b""
            elif name == "outbox-revision":
                revision = int(value) if value and value.isdigit() and len(value) < 10 else NONE
            elif name == "outbox-replay":
                replay = short_hash(value or b"")
        session, _, _ = outbox_id.rpartition(b"/")
        place, _, input_offset = session.rpartition(b"/")
        if not (input_offset.isdigit() and len(input_offset) < 19):
            self._count("foreign_records")
            if self._state.topics[topic] not in self._state.foreign:
                self._state.foreign.append(self._state.topics[topic])
            return
        self._count("records" if replay == NOT_REPLAYED else "replayed_records")
        set_by, timestamp = message.timestamp()
        self._spill.append(
            bucket_of(session, self._spill.buckets),
            FOUND.pack(
                identity_of(outbox_id, revision),
                content_of(message.key(), message.value(), own),
                topic,
                message.partition() or 0,
                offset,
                timestamp if set_by == _CREATE_TIME else NONE,
                revision,
                int(input_offset),
                self._place(place),
                replay,
            ),
        )

    def _place(self, place: bytes) -> int:
        number = self._places.get(place)
        if number is None:
            number = self._places[place] = len(self._places)
            self._state.places.append(place.decode("utf-8", "backslashreplace"))
        return number

    def _count(self, name: str) -> None:
        self._state.counted[name] = self._state.counted.get(name, 0) + 1

    def _save(self) -> None:
        self._state.found_sizes = self._spill.flush()
        states.save(self._folder, self._state)

    def _where(self) -> str:
        return ", ".join(
            f"{self._state.topics[topic]}[{partition}] at {self._state.next_offsets[topic][partition]} of "
            f"{self._state.ends[topic][partition]}"
            for topic, partition in sorted(self._open)[:5]
        )
