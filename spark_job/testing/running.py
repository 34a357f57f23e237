"""Run a transform on some records: with the job's own assembler and encoder, and without writing anything."""

from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

import pyarrow as pa

from contract.output_topics import OutputTopics
from service.errors import SettingsError
from service.formats.writer import Schemas
from service.settings import Settings, load_settings
from spark_job.api import Session
from spark_job.assembly.refused_ids import NOTHING_REFUSED
from spark_job.assembly.schemas import RegistryBudget, judged
from spark_job.assembly.slices import AppliedRules
from spark_job.input.columns import RecordColumns
from spark_job.ledger.assembly_rules import applied_rules, stored_rules
from spark_job.outputs.encoding import EncodeValue, encode
from spark_job.outputs.trace_context import TraceContext, trace_contexts
from spark_job.outputs.transform import Transform
from spark_job.outputs.transform_failures import TransformRaisedError, failure_text, run_transform
from spark_job.sessions.assembler import assemble
from spark_job.sessions.result import ClosedSession, DeadLetter
from spark_job.sessions.session import to_session, value_decoder
from spark_job.sessions.state.open_state import OpenState
from spark_job.testing.outputs import StoredOutput, stored
from spark_job.testing.records import Records, table_of


@dataclass(frozen=True)
class SessionRun:
    """The outputs of one session, or its failure."""

    session: Session
    outputs: tuple[StoredOutput, ...] = ()
    failure: str | None = None
    """The traceback, if the session becomes a dead letter `transform_failed`."""


@dataclass(frozen=True)
class TransformRun:
    """What the job would write for some records of one partition."""

    sessions: list[SessionRun]
    """In the order of their ends."""
    letters: list[DeadLetter]
    """Letters of records that are no session; a failed transform is noted with its session."""
    open: list[str]
    """Keys of the sessions that have not ended."""

    @property
    def outputs(self) -> list[StoredOutput]:
        """All outputs, session after session."""
        return [output for each in self.sessions for output in each.outputs]


def run(
    transform: Transform, records: Records, settings: Settings | Path | str | None = None
) -> TransformRun:
    """Run a transform over some records of one partition, and return what the job would store.

    `settings`: a settings file, by default the one that the job would read here.
    Raises SettingsError for settings that need a schema registry to read events; OSError for a file of records that cannot be read.
    """
    of = settings if isinstance(settings, Settings) else load_settings(settings)
    if of.source.has_schemas:
        raise SettingsError(
            f"[source] format = {of.source.format!r}: its schemas are in a registry, and nothing is asked here. `spark-job try` asks it; a "
            "test makes its sessions by hand (spark_job.Session)"
        )
    runner = TransformRunner(transform, of)
    return runner.run(table_of(records, runner.columns), of.source.topics[0], 0)


@dataclass(frozen=True)
class WholeSession:
    """A session before the transform, and where it was read."""

    closed: ClosedSession
    context: TraceContext
    topic: str
    partition: int


@dataclass(frozen=True)
class AssembledRecords:
    """What the assembler made of some records of one partition; see TransformRun."""

    sessions: list[WholeSession]
    letters: list[DeadLetter]
    open: list[str]


@dataclass(frozen=True)
class TransformRunner:
    """Runs a transform by the rules of some settings."""

    function: Transform
    settings: Settings
    schemas: Schemas = field(default_factory=dict)
    """Schemas, for formats that have any."""
    encode_value: EncodeValue | None = None
    """Encodes values with schemas; None: there is no registry."""

    @cached_property
    def _assembly(self) -> AppliedRules:
        return applied_rules(stored_rules(self.settings))

    @property
    def columns(self) -> RecordColumns:
        """The columns that `run` needs of each record."""
        columns = self._assembly.columns
        return columns.with_trace_context() if self.settings.tracing.propagate else columns

    def run(self, new: pa.Table, topic: str, partition: int) -> TransformRun:
        """Return what the job would write for some records of a partition, in `columns`. Raises as `assembled` and `transformed`."""
        found = self.assembled(new, topic, partition)
        return TransformRun([self.transformed(each) for each in found.sessions], found.letters, found.open)

    def assembled(self, new: pa.Table, topic: str, partition: int) -> AssembledRecords:
        """Return the sessions and letters of some records. Raises RegistryAwayError, RegistryRefusedError."""
        rules = self._assembly.rules
        of = judged(self.schemas, new, rules, NOTHING_REFUSED, RegistryBudget())
        found = assemble(OpenState.empty(), of.records, rules, of.schemas)
        sessions = [
            WholeSession(closed, context, topic, partition)
            for closed, context in zip(found.closed, trace_contexts(new, found.closed), strict=True)
        ]
        still_open = found.state.sessions
        keys = still_open.key.filter(pa.array(~still_open.is_tombstone)).to_pylist()
        return AssembledRecords(sessions, found.letters, keys)

    def transformed(self, of: WholeSession) -> SessionRun:
        """Run the transform on a session. Raises errors that are not the session's fault: RegistryAwayError and the like."""
        closed, publisher = of.closed, self.settings.publisher
        decode = value_decoder(self._assembly.rules.format, self.schemas)
        session = to_session(closed, of.topic, of.partition, decode)
        try:
            encoded = run_transform(
                self.function,
                session,
                decode,
                partial(
                    encode,
                    max_bytes=self.settings.job.max_row_bytes,
                    encode_value=self.encode_value,
                    context=of.context,
                    allowed=OutputTopics(publisher.output_topics, publisher.progress_topic),
                ),
            )
        except TransformRaisedError as raised:
            return SessionRun(session, failure=failure_text(raised.cause))
        return SessionRun(session, tuple(stored(encoded, closed.key)))
