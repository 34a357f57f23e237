"""The pure session assembler: pyarrow and numpy, never Spark, Postgres or Kafka. See `assembler` for the flow."""

from spark_job.sessions.assembler import assemble
from spark_job.sessions.errors import AssemblyError, DamagedStateError, InputSchemaError
from spark_job.sessions.result import AssembledSessions, ClosedSession, Counts, DeadLetter
from spark_job.sessions.session import SessionEvents, to_session
from spark_job.sessions.settings import MAX_KEY_BYTES, AssemblySettings
from spark_job.sessions.state.open_sessions import OpenSessions
from spark_job.sessions.state.open_state import OpenState

__all__ = [
    "MAX_KEY_BYTES",
    "AssembledSessions",
    "AssemblyError",
    "AssemblySettings",
    "ClosedSession",
    "Counts",
    "DamagedStateError",
    "DeadLetter",
    "InputSchemaError",
    "OpenSessions",
    "OpenState",
    "SessionEvents",
    "assemble",
    "to_session",
]
