"""Finds a session by its key, an outbox-id, or a record's position in the input or in an output topic."""

from dataclasses import dataclass, field

from contract.positions import OutboxId, RecordPosition, parse_position
from publisher.console.reader import Connection
from publisher.outbox.erased import erased_at_end, erased_of_key
from publisher.trace.identify import identify, is_kept
from publisher.trace.input_positions import MOST_CANDIDATES, Candidate, LetterMatch, find_matches
from publisher.trace.records import StoredRecord, record_at
from service.errors import OutboxError
from service.settings import KafkaSettings

_KAFKA_TIMEOUT_S = 5


@dataclass(slots=True)
class SearchOutcome:
    """`key`: the only session key that matches; None if several may match, or none does. `notes`: on the search."""

    query: str
    key: str | None = None
    meant: str = ""
    candidates: list[Candidate] = field(default_factory=list)
    letters: list[LetterMatch] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def search(connection: Connection, kafka: KafkaSettings, query: str) -> SearchOutcome:
    """Return the sessions that the text may mean. Raises psycopg.Error."""
    query = query.strip()
    outcome = SearchOutcome(query)
    if not query or "\0" in query:
        return outcome
    position = identify(connection, query)
    if isinstance(position, str):
        outcome.meant = "a session key"
        erased = erased_of_key(connection, position)
        if erased and not is_kept(connection, position):
            outcome.notes += map(str, erased[:MOST_CANDIDATES])
        else:
            outcome.key = position
        return outcome
    if position is None:
        outcome.notes.append("no session and no dead letter has this key")
        return outcome
    if isinstance(position, OutboxId):
        outcome.meant = "an outbox-id"
        _input(connection, kafka, position.end, outcome, is_end=True)
    else:
        outcome.meant = "a position in Kafka"
        _position(connection, kafka, position, outcome)
    return outcome


def _position(
    connection: Connection, kafka: KafkaSettings, position: RecordPosition, outcome: SearchOutcome
) -> None:
    _input(connection, kafka, position, outcome)
    if outcome.key is not None or outcome.candidates or outcome.letters:
        return
    record = _record(kafka, position, outcome)
    if record is None or record.outbox_id is None:
        return
    outcome.notes.append(f"the record there has the outbox-id {record.outbox_id}")
    try:
        sent = parse_position(record.outbox_id)
    except ValueError:
        return
    if isinstance(sent, OutboxId):
        _input(connection, kafka, sent.end, outcome, is_end=True)


def _input(
    connection: Connection,
    kafka: KafkaSettings,
    position: RecordPosition,
    outcome: SearchOutcome,
    *,
    is_end: bool = False,
) -> None:
    there = find_matches(connection, position, only_ends=is_end)
    if there.letters_hidden:
        outcome.notes.append("the console's login may not read dead letters, so none was searched")
    exact = there.keys(exact=True)
    if len(exact) == 1 and not any(letter.session_key is None for letter in there.letters):
        outcome.key = exact[0]
        return
    outcome.candidates, outcome.letters = there.candidates, there.letters
    if not exact:
        for topic_id in there.topic_ids:
            gone = erased_at_end(connection, topic_id, position.partition, position.offset)
            outcome.notes += map(str, gone)
    if not exact and there.candidates and not is_end:
        # Sessions overlap here. If producers use the session key as record key, the record's key tells which session has the event.
        record = _record(kafka, position, outcome)
        keys = {each.session_key for each in there.candidates}
        if record is not None and record.key in keys:
            outcome.key = record.key


def _record(kafka: KafkaSettings, position: RecordPosition, outcome: SearchOutcome) -> StoredRecord | None:
    limited = kafka.model_copy(update={"request_timeout_s": min(_KAFKA_TIMEOUT_S, kafka.request_timeout_s)})
    try:
        record = record_at(limited, *position)
    except OutboxError as error:
        outcome.notes.append(f"Kafka was not read: {error}")
        return None
    if record is None:
        outcome.notes.append(f"Kafka has no committed record at {position} (any more)")
    return record
