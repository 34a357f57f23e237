"""Run the current transform on kept events once more: one or more ledger batches of kind `retry` for each step.

1. Read some letters; refuse those that are not a session, or must not be retried now.
2. Transform, outside of any transaction: a failure leaves its letter open.
3. In one transaction: take the writer lock (not the writer's row: the running job continues), check again what may have changed, store the
   rows as the sink does, resolve the letters, write the ledger row, NOTIFY.

The transaction that stores a letter's outputs also resolves the letter, and only if it was open under the writer lock. So a second retry, a
batch of the job that covers the letter, and a crash at any moment leave its outputs in the outbox once.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any
from uuid import uuid4

from psycopg.rows import dict_row

from contract.output_topics import OutputTopics
from contract.session_keys import lane_hash
from db import operations, windows
from db.connection import Connection, confirmed_transaction
from db.statements import queries
from db.windows import Window
from service.errors import OutboxError, RefusedError, SettingsError, UnavailableError
from service.formats.registry.schemas import schemas_of
from service.formats.writer import RegistryAwayError, RegistryRefusedError, Schemas
from service.kafka.transport import name_unprotected_registry
from service.settings import Settings
from spark_job.assembly.refused_ids import NOTHING_REFUSED
from spark_job.assembly.schemas import RegistryBudget, judged
from spark_job.dead_letters import store
from spark_job.dead_letters.outcome import Failed, Ready, Refused, RetryOutcome
from spark_job.dead_letters.refusals import GONE, READ_ELSEWHERE, refusal
from spark_job.dead_letters.sessions_of_letters import NotWholeError, events_of, session_of, sessions_of
from spark_job.dead_letters.store import Filter, LetterToRetry, StoredLetter
from spark_job.input.offsets import Offsets, TopicPartition
from spark_job.ledger import generations, ownership, position
from spark_job.ledger.assembly_rules import applied_rules
from spark_job.outputs import transform
from spark_job.outputs.encoding import encode
from spark_job.outputs.lacking import lacking
from spark_job.outputs.schemas import OutputSchemaRefusedError, output_encoder
from spark_job.outputs.session_row import SessionPlace
from spark_job.outputs.settings import OutputSchemaRules
from spark_job.outputs.transform_failures import TransformRaisedError, failure_text, run_transform
from spark_job.sessions.result import ClosedSession
from spark_job.sessions.session import to_session, value_decoder
from spark_job.sessions.settings import AssemblySettings
from spark_job.sink import batch_result, covered_letters, ledger_rows
from spark_job.sink.batch_result import SessionRow
from spark_job.sink.copy_rows import copy_rows
from spark_job.sink.ledger_rows import LedgerEntry

_LETTERS = queries("spark_job", "letters")

_BYTES_PER_BATCH = 32 << 20
_LETTER_BYTES = 1 << 10
"""Assumed size of a letter beside its events."""
_MALFORMED_BYTES_PER_BATCH = 64 << 20
"""A greater limit for letters `malformed`: a session's events are letters far apart, and must be in one step."""
_PARTITIONS_AHEAD = 10_000  # batches for which missing table partitions are made


class Retry:
    """One command's retries, under a run id of its own. Raises SettingsError when the transform cannot be loaded."""

    def __init__(
        self,
        connection: Connection,
        settings: Settings,
        *,
        incomplete: bool = False,
        asked: Mapping[str, Any] | None = None,
    ) -> None:
        """`connection` must be in autocommit mode; `incomplete`: as in `session_of`; `asked`: which letters, for the operator log."""
        self._asked = {**(asked or {}), "incomplete": incomplete}
        self._connection = connection
        self._settings = settings
        self._incomplete = incomplete
        self._transform = transform.load(settings.transform.function)
        self._run_id = uuid4()
        self._assemblies: dict[int, AssemblySettings] = {}
        self._registry = settings.schema_registry.client()
        name_unprotected_registry(settings.schema_registry)
        rules = OutputSchemaRules(
            settings.schema_registry.auto_register, settings.schema_registry.subject_name_strategy
        )
        self._encode = partial(
            encode,
            max_bytes=settings.job.max_row_bytes,
            encode_value=output_encoder(self._registry, rules),
            allowed=OutputTopics(settings.publisher.output_topics, settings.publisher.progress_topic),
        )

    def steps(self, which: Filter, letters_per_batch: int) -> list[list[int]]:
        """Return the ids for each call of `run_once`: letters of one revision, no more than fit in memory."""
        found = store.to_retry(self._connection, which)
        sessions = [each for each in found if each.reason != "malformed"]
        events = [each for each in found if each.reason == "malformed"]
        return [
            *_steps(sessions, letters_per_batch, _BYTES_PER_BATCH),
            *_steps(events, len(events), _MALFORMED_BYTES_PER_BATCH),
        ]

    def run_once(self, ids: Sequence[int], *, dry_run: bool = False) -> RetryOutcome:
        """Retry the letters of one step. A dry run transforms them too and writes nothing.

        Raises UnavailableError or psycopg.Error when the connection was lost: then it is unknown whether the step is in the outbox.
        """
        outcome = RetryOutcome()
        next_batch = ledger_rows.read_state(self._connection).next_batch
        letters = store.read(self._connection, ids)
        refusals = self._refusals(letters)
        ready = []
        for mine, closed in self._sessions(letters, refusals, outcome.failed, next_batch):
            with _letters_at_fault(mine, outcome.failed), _registry_errors():
                ready.append(Ready(mine, self._transformed(mine[0], closed)))
        outcome.refused = [Refused(number, because) for number, because in refusals.items()]
        if dry_run:
            outcome.retried = ready
        elif ready:
            self._write(ready, outcome, next_batch)
        return outcome

    def _sessions(
        self,
        letters: Sequence[StoredLetter],
        refusals: dict[int, str],
        failed: list[Failed],
        next_batch: int,
    ) -> Iterator[tuple[tuple[StoredLetter, ...], ClosedSession]]:
        """Yield the sessions of the letters that are not refused; add to `refusals` why other letters are not a session, and to `failed`
        letters whose events cannot be read.

        `next_batch`: the batches before it are searched for outputs that have the same events.
        """
        events: dict[tuple[int, TopicPartition], list[StoredLetter]] = {}
        for letter in letters:
            if letter.dead_letter_id in refusals:
                continue
            if letter.reason == "malformed":
                events.setdefault((letter.generation, letter.where), []).append(letter)
                continue
            assembly = self._assembly(letter.generation)
            closed = None
            with _letters_at_fault((letter,), failed), _registry_errors():
                try:
                    closed = session_of(
                        letter, assembly, self._schemas(assembly), incomplete=self._incomplete
                    )
                except NotWholeError as error:
                    refusals[letter.dead_letter_id] = str(error)
            if closed is not None:
                yield (letter,), closed
        budget = RegistryBudget()
        for (generation, _), some in events.items():
            assembly = self._assembly(generation)
            found: list[tuple[ClosedSession, list[StoredLetter]]] = []
            with _letters_at_fault(some, failed), _registry_errors():
                schemas = self._schemas(assembly)
                if not assembly.schema_id_in_header:
                    schemas = judged(schemas, events_of(some), assembly, NOTHING_REFUSED, budget).schemas
                found, refused = sessions_of(some, assembly, schemas)
                refusals |= refused
            kept = windows.kept(self._connection, 0, next_batch - 1)
            read = self._read_by_others([(closed.key, mine) for closed, mine in found], kept)
            for place, (closed, mine) in enumerate(found):
                if place in read:
                    refusals |= {letter.dead_letter_id: READ_ELSEWHERE for letter in mine}
                else:
                    yield tuple(mine), closed

    def _read_by_others(
        self,
        sessions: Sequence[tuple[str, Sequence[StoredLetter]]],
        batches: Sequence[Window],
    ) -> set[int]:
        """Return the indexes of sessions with events elsewhere too: in open sessions, other letters or outputs of `batches`, or erased.

        The answer is final only under the writer lock. Pass few batches then: locks on their table partitions are held as long as the
        writer lock.
        """
        now = position.read(self._connection)
        ends = [(letters[0], letters[-1].first_offset) for _, letters in sessions]
        read = {
            place
            for place, (first, last) in enumerate(ends)
            if now is not None and last >= now.safe(first.where)
        }
        places = {
            "keys": [key for key, _ in sessions],
            "topic_ids": [first.topic_id for first, _ in ends],
            "partitions": [first.partition for first, _ in ends],
            "firsts": [first.first_offset for first, _ in ends],
            "lasts": [last for _, last in ends],
        }
        for window in batches:
            found = self._connection.execute(_LETTERS["was_read"], places | window.bounds, prepare=False)
            read |= {place for (place,) in found}
        return read

    def _transformed(self, letter: StoredLetter, closed: ClosedSession) -> SessionRow:
        assembly = self._assembly(letter.generation)
        decode = value_decoder(assembly.format, self._schemas(assembly))
        session = to_session(closed, letter.topic, letter.partition, decode)
        outputs = run_transform(self._transform, session, decode, self._encode)
        key = closed.key.encode()
        return SessionRow(
            key,
            letter.where,
            closed.start_offset,
            closed.end_offset,
            lane_hash(key),
            outputs.events,
            outputs.value_bytes,
            SessionPlace(letter.where.topic_id, letter.where.partition).fields(closed, outputs),
        )

    def _write(self, ready: Sequence[Ready], outcome: RetryOutcome, next_batch: int) -> None:
        """Store the sessions, and complete `outcome`. `next_batch`: `_sessions` has searched the batches before it."""
        connection = self._connection
        ahead = ledger_rows.read_state(connection).next_batch
        ledger_rows.ensure_partitions(connection, ahead, ahead + len(ready) + _PARTITIONS_AHEAD)
        with confirmed_transaction(connection):
            ownership.lock(connection)
            refusals = self._refusals([letter for one in ready for letter in one.letters])
            events = [one for one in ready if one.letter.reason == "malformed"]
            since = Window(next_batch, ledger_rows.read_state(connection).next_batch - 1)
            for place in self._read_by_others(
                [(one.session.key.decode(), one.letters) for one in events], [since]
            ):
                refusals |= {letter.dead_letter_id: READ_ELSEWHERE for letter in events[place].letters}
            retried = [
                one for one in ready if not any(letter.dead_letter_id in refusals for letter in one.letters)
            ]
            if retried:
                outcome.batches, outcome.also_resolved = self._store(retried)
                operations.record(
                    connection,
                    "spark-job dead-letters retry",
                    self._asked,
                    {
                        "ids": [letter.dead_letter_id for one in retried for letter in one.letters],
                        "batches": outcome.batches,
                        "superseded": outcome.also_resolved,
                    },
                )
        outcome.retried = retried
        outcome.refused += [Refused(number, because) for number, because in refusals.items()]

    def _store(self, ready: Sequence[Ready]) -> tuple[list[int], int]:
        """Write the rows, the letters and the ledger; return the new batches and the number of further letters resolved."""
        connection = self._connection
        parts = batch_result.parts([one.session for one in ready], self._settings.job.max_row_bytes)
        now = ledger_rows.read_state(connection)
        assert now.generation is not None, "a letter names its generation"
        batches = copy_rows(connection, parts, now.next_batch, now.lanes, ready[0].letter.revision)
        of_letters = [(letter.dead_letter_id, one.session) for one in ready for letter in one.letters]
        ids = [number for number, _ in of_letters]
        resolved = connection.execute(
            _LETTERS["resolve_retried"],
            {
                "ids": ids,
                "keys": [session.key.decode() for _, session in of_letters],
                "starts": [session.start for _, session in of_letters],
                "first_batch": batches[0],
                "last_batch": batches[-1],
            },
            prepare=False,  # a generic plan would lock every partition of session_output
        ).rowcount
        assert resolved == len(ids), f"{resolved} of the letters {ids} found their sessions"
        keys = sorted({one.session.key.decode() for one in ready})
        further = covered_letters.resolve(connection, keys, batches)
        entry = LedgerEntry("retry", now.generation, self._run_id, transform.fingerprint(self._transform))
        ledger_rows.insert_rows(connection, entry, parts, batches, now.lanes)
        return list(batches), further

    def _refusals(self, letters: Sequence[StoredLetter]) -> dict[int, str]:
        """Return {id: why} of the letters that may not be retried now; final only under the writer lock."""
        now = position.read(self._connection)
        with self._connection.cursor(row_factory=dict_row) as cursor:
            standings = cursor.execute(
                _LETTERS["standings"],
                {"ids": [letter.dead_letter_id for letter in letters]},
            ).fetchall()
        by_id = {standing["dead_letter_id"]: standing for standing in standings}
        end, topics = (now.end, now.generation.topics) if now else (Offsets(), {})
        gone = {each.dead_letter_id: GONE for each in letters if each.dead_letter_id not in by_id}
        found = (
            (each.dead_letter_id, refusal(each, by_id[each.dead_letter_id], end, topics))
            for each in letters
            if each.dead_letter_id in by_id
        )
        return gone | {number: because for number, because in found if because}

    def _schemas(self, assembly: AssemblySettings) -> Schemas:
        if assembly.format in ("json", "bytes"):
            return {}
        if not self._registry:
            raise SettingsError(
                f"the letters' events are {assembly.format}: their schemas are needed, name the registry in [schema_registry] url"
            )
        return schemas_of(self._registry)

    def _assembly(self, generation: int) -> AssemblySettings:
        if generation not in self._assemblies:
            assembly = generations.assembly_of_generation(self._connection, generation)
            self._assemblies[generation] = applied_rules(assembly).rules
        return self._assemblies[generation]


def _steps(found: Sequence[LetterToRetry], most: int, most_bytes: int) -> list[list[int]]:
    """Group the ids by revision into steps of at most `most` letters with `most_bytes` bytes."""
    result: list[list[int]] = []
    size, of = 0, -1
    for each in found:
        mine = each.bytes + _LETTER_BYTES
        size += mine
        if each.revision != of or len(result[-1]) == most or size > most_bytes:
            result.append([])
            size, of = mine, each.revision
        result[-1].append(each.dead_letter_id)
    return result


@contextmanager
def _letters_at_fault(letters: Sequence[StoredLetter], failed: list[Failed]) -> Iterator[None]:
    """Add the letters to `failed` if their session's transform raises, or if their events raise anything: the others are retried.

    Raises an OutboxError, and the error of a machine that lacks a resource: no letter is at fault.
    """
    try:
        yield
    except OutboxError:
        raise
    except Exception as error:
        if lacking(error) is not None:
            raise
        cause = error.cause if isinstance(error, TransformRaisedError) else error
        said, trace = str(TransformRaisedError(cause)), failure_text(cause)
        failed += [Failed(letter.dead_letter_id, said, trace) for letter in letters]


@contextmanager
def _registry_errors() -> Iterator[None]:
    """Turn what a schema registry's answers raise into an OutboxError."""
    try:
        yield
    except RegistryAwayError as error:
        raise UnavailableError(str(error)) from error
    except (RegistryRefusedError, OutputSchemaRefusedError) as error:
        raise RefusedError(str(error)) from error
