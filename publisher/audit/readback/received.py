"""Reads the output topics into buckets: every committed record of an output as `ReceivedOutput`. Continues where a killed audit stopped."""

import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import KafkaException, Message

from publisher.audit.readback import state as states
from publisher.audit.readback.digest import (
    NONE,
    NOT_REPLAYED,
    RECEIVED,
    bucket_of,
    content_of,
    identity_of,
    is_own,
    partition_number,
    short_hash,
)
from publisher.audit.readback.spill import Spill
from publisher.audit.readback.state import AuditState
from publisher.kafka.clients import committed_reader, reading
from publisher.protocol.records import ERASED_HEADER
from service.errors import UnavailableError
from service.kafka.client import failure_of
from service.kafka.reading import EndNotReachedError, RangeReader
from service.kafka.record_headers import headers_of
from service.settings import Settings

SAVE_S = 5.0
_CREATE_TIME = 1
_MOST_PARTITION = 2**31 - 1

Advance = Callable[[int], None]
"""Called with the number of offsets that were passed since the last call."""


class ReceivedReader:
    """Reads each partition from `state.next_offsets` to `state.ends` and appends its records to `spill`."""

    def __init__(self, settings: Settings, state: AuditState, folder: Path, spill: Spill) -> None:
        self._settings = settings
        self._state = state
        self._folder = folder
        self._spill = spill
        self._topics = {name: number for number, name in enumerate(state.topics)}
        self._inputs = {topic_id.encode(): number for number, topic_id in enumerate(state.inputs)}
        self._seed = bytes.fromhex(state.seed)
        # After this time, Kafka has ended every transaction that was open below the ends.
        self._patience_s = settings.publisher.transaction_timeout_ms / 1000 + settings.kafka.request_timeout_s

    def run(self, advance: Advance) -> None:
        """Read all partitions up to their ends. Raises UnavailableError if Kafka stops answering."""
        state = self._state
        ranges = {
            (state.topics[topic], int(partition)): (state.next_offsets[topic][partition], end)
            for topic, ends in enumerate(state.ends)
            for partition, end in ends.items()
        }
        saved = time.monotonic()
        try:
            with (
                committed_reader(self._settings.kafka, timeout_s=self._patience_s) as reader,
                reading(self._settings.kafka, *state.topics),
            ):
                for messages in reader.read(ranges):
                    self.take(messages)
                    advance(self._advanced(reader))
                    if time.monotonic() - saved > SAVE_S:
                        self._save()
                        saved = time.monotonic()
                advance(self._advanced(reader))
        except EndNotReachedError as error:
            raise UnavailableError(
                f"the topics could not be read to their ends: {error.args[0].str()}. A transaction is open there, or Kafka does not answer"
            ) from error
        except KafkaException as error:
            raise failure_of(self._settings.kafka, error) from error
        self._save()

    def take(self, messages: list[Message]) -> None:
        """Keep the fetched records."""
        for message in messages:
            self._keep(self._topics[message.topic() or ""], message, message.offset() or 0)

    def _advanced(self, reader: RangeReader) -> int:
        """Note the position in each partition; return how many offsets were passed since the last call."""
        passed = 0
        for (name, partition), position in reader.positions.items():
            offsets = self._state.next_offsets[self._topics[name]]
            passed += position - offsets[str(partition)]
            offsets[str(partition)] = position
        return passed

    def _keep(self, topic: int, message: Message, offset: int) -> None:
        outbox_id, revision, replay, own, ends_erased = b"", 0, NOT_REPLAYED, [], False
        for header in headers_of(message):
            name, value = header
            if is_own(name):
                own.append(header)
            elif name == "outbox-id":
                outbox_id = value or b""
            elif name == "outbox-revision":
                revision = int(value) if value and value.isdigit() and len(value) < 10 else NONE
            elif name == "outbox-replay":
                replay = short_hash(value or b"", self._seed)
            elif name == ERASED_HEADER:
                ends_erased = True
        if ends_erased and not outbox_id:
            self._count("tombstones_of_erasure")
            return
        session, _, output = outbox_id.rpartition(b"/")
        source, _, input_offset = session.rpartition(b"/")
        topic_id, _, partition = source.rpartition(b"/")
        if not all(each.isdigit() and len(each) < 19 for each in (partition, input_offset)):
            self._count("foreign_records")
            self._note_foreign(topic)
            return
        self._count("records" if replay == NOT_REPLAYED else "replayed_records")
        number = self._inputs.get(topic_id)
        if number is None or int(partition) > _MOST_PARTITION:
            self._count("records_of_other_outboxes")
            self._note_foreign(topic)
            return
        set_by, timestamp = message.timestamp()
        self._spill.append(
            bucket_of(session, self._spill.buckets, self._seed),
            RECEIVED.pack(
                identity_of(outbox_id, revision),
                content_of(message.key(), message.value(), own),
                topic,
                message.partition() or 0,
                offset,
                timestamp if set_by == _CREATE_TIME else NONE,
                revision,
                int(input_offset),
                partition_number(number, int(partition)),
                replay,
                int(output) if output.isdigit() and len(output) < 10 else NONE,
            ),
        )

    def _note_foreign(self, topic: int) -> None:
        if self._state.topics[topic] not in self._state.foreign:
            self._state.foreign.append(self._state.topics[topic])

    def _count(self, name: str) -> None:
        self._state.counted[name] = self._state.counted.get(name, 0) + 1

    def _save(self) -> None:
        self._state.found_sizes = self._spill.flush()
        states.save(self._folder, self._state)
