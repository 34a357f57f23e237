"""Describes the findings for people. Reads outputs and records again, only for the examples."""

from collections.abc import Sequence
from itertools import islice
from typing import Any

import psycopg
from confluent_kafka import Message

from db.statements import queries
from publisher.audit.findings import Check
from publisher.audit.readback.compare import Alteration, Comparison, Disorder
from publisher.audit.readback.digest import ExpectedOutput, ReceivedOutput, is_own
from publisher.kafka.clients import committed_reader
from publisher.protocol.records import Header, OutputRecord, Row, records
from service.kafka.reading import EndNotReachedError
from service.kafka.record_headers import headers_of
from service.settings import KafkaSettings

_ROWS = queries("publisher.audit", "rows")

_LOOK_UP_S = 20.0


class Explainer:
    """Describes outputs and records. The caller closes it."""

    def __init__(
        self, connection: psycopg.Connection[Any], settings: KafkaSettings, topics: list[str]
    ) -> None:
        self._connection = connection
        self._topics = topics
        self._reader = committed_reader(settings, timeout_s=_LOOK_UP_S)
        self._rows: dict[tuple[int, int, int], Row | None] = {}

    def close(self) -> None:
        """Disconnect from Kafka."""
        self._reader.close()

    def checks(self, found: Comparison) -> list[Check]:
        """Return the comparison as checks."""
        lost = Check("lost", "Is every delivered output in its topic?")
        lost.count = found.lost.count
        lost.examples = [self.output(output) for output in found.lost.examples]
        duplicated = Check(
            "duplicated", "Is each output in its topic once per revision, and once per replay?"
        )
        duplicated.count = found.duplicated.count
        for output, copies in found.duplicated.examples:
            positions = ", ".join(self.position(copy) for copy in copies)
            duplicated.examples.append(f"{self.output(output)}: at {positions}")
        altered = Check(
            "altered",
            "Does each record have its output's key, value, own headers, topic, partition and time?",
        )
        altered.count = found.altered.count
        altered.examples = [self._alteration(alteration) for alteration in found.altered.examples]
        unexpected = Check(
            "unexpected", "Is every record with an outbox-id of this outbox explained by a row?"
        )
        unexpected.count = found.unexpected.count + found.parked.count
        unexpected.examples = [
            f"{self._record(record)}: no row of the outbox" for record in found.unexpected.examples
        ]
        unexpected.examples += [
            f"{self.output(output)}: at {self.position(record)}, though its row was parked"
            for output, record in found.parked.examples
        ]
        order = Check("order", "Are a session key's outputs in a topic partition in the order of the outbox?")
        order.count = found.disordered.count
        order.examples = [self._disorder(disorder) for disorder in found.disordered.examples]
        skipped = Check("skipped_by_resume", "Did a resume skip outputs on request?", fails=False)
        skipped.count = found.skipped.count
        skipped.examples = [self.output(output) for output in found.skipped.examples]
        undecidable = Check(
            "not_decidable", "Are outputs missing that retention or compaction may have deleted?", fails=False
        )
        undecidable.count = found.undecidable.count
        undecidable.examples = [self.output(output) for output in found.undecidable.examples]
        return [lost, duplicated, altered, unexpected, order, skipped, undecidable]

    def output(self, output: ExpectedOutput) -> str:
        """Return the name of an output of the outbox."""
        record = self._stored(output)
        row = self._row(output)
        if record is None or row is None:
            return f"output {output.event} of row {output.row} of lane {output.lane}, batch {output.batch_id}"
        outbox_id: Any = record.headers[0][1]
        revision = f" revision {row.revision}" if row.revision else ""
        return f"{outbox_id.decode()}{revision} (batch {row.batch_id}, session {row.session_key!r}, topic {record.topic})"

    def position(self, record: ReceivedOutput) -> str:
        """Return the position of a record in words."""
        return f"{self._topics[record.topic]}[{record.partition}]@{record.offset}"

    def _alteration(self, alteration: Alteration) -> str:
        fields = [name for name in alteration.fields if name != "content"]
        if "content" in alteration.fields:
            fields = self._content_fields(alteration) + fields
        return f"{self.output(alteration.expected)}: {', '.join(fields)} differ at {self.position(alteration.found)}"

    def _content_fields(self, alteration: Alteration) -> list[str]:
        record, message = self._stored(alteration.expected), self._message(alteration.found)
        if record is None or message is None:
            return ["key, value or headers"]
        pairs = {
            "key": (record.key, message.key()),
            "value": (record.value, message.value()),
            "headers": (_own(record.headers), _own(headers_of(message))),
        }
        return [name for name, (stored, seen) in pairs.items() if stored != seen]

    def _disorder(self, found: Disorder) -> str:
        outputs = "two outputs of a session key"
        topic = f"{self._topics[found.topic]}[{found.partition}]"
        message = self._message_at(found.topic, found.partition, found.later_offset)
        other = self._message_at(found.topic, found.partition, found.former_offset)
        if message is not None and other is not None:
            outputs = f"{_outbox_id(other)} and {_outbox_id(message)}"
        return (
            f"{topic}: {outputs} are in this order in the outbox (batch {found.former[0]} output {found.former[1]}, "
            f"batch {found.later[0]} output {found.later[1]}), but at offsets {found.former_offset} and {found.later_offset}"
        )

    def _record(self, record: ReceivedOutput) -> str:
        message = self._message(record)
        name = "a record" if message is None else _outbox_id(message)
        revision = f" revision {record.revision}" if record.revision else ""
        return f"{name}{revision} at {self.position(record)}"

    def _row(self, output: ExpectedOutput) -> Row | None:
        row = (output.batch_id, output.lane, output.row)
        if row not in self._rows:
            rows = self._connection.execute(
                _ROWS["of_lane"],
                {"lane": output.lane, "from_batch": output.batch_id, "to_batch": output.batch_id},
                binary=True,
                prepare=False,
            )
            columns = next(islice(rows, output.row, None), None)
            self._rows[row] = None if columns is None else Row(*columns[:-2])
        return self._rows[row]

    def _stored(self, output: ExpectedOutput) -> OutputRecord | None:
        row = self._row(output)
        try:
            return None if row is None else next(islice(records(row), output.event, None), None)
        except ValueError:
            return None

    def _message(self, record: ReceivedOutput) -> Message | None:
        return self._message_at(record.topic, record.partition, record.offset)

    def _message_at(self, topic: int, partition: int, offset: int) -> Message | None:
        """Return a record, None if Kafka no longer has it."""
        named = self._topics[topic], partition
        try:
            blocks = list(self._reader.read({named: (offset, offset + 1)}))
        except EndNotReachedError:
            return None
        return next((message for block in blocks for message in block), None)


def _own(headers: Sequence[Header]) -> list[tuple[str, bytes | None]]:
    return [
        (name, value.encode() if isinstance(value, str) else value) for name, value in headers if is_own(name)
    ]


def _outbox_id(message: Message) -> str:
    return next(
        (
            value.decode("utf-8", "backslashreplace")
            for name, value in headers_of(message)
            if name == "outbox-id" and value
        ),
        "a record",
    )
