"""The pure session assembler: pyarrow and numpy, never Spark, Postgres or Kafka. See `assembler` for the flow."""

from spark_job.sessions.assembler import assemble
from spark_job.sessions.errors import AssemblyError, BucketTooLarge, InputSchemaError, UnknownStateVersion
from spark_job.sessions.result import Assembled, ClosedSession, Counts, DeadLetter, Summary
from spark_job.sessions.session import SessionEvents, to_session
from spark_job.sessions.settings import MAX_KEY_BYTES, AssemblySettings

__all__ = [
    "MAX_KEY_BYTES",
    "Assembled",
    "AssemblyError",
    "AssemblySettings",
    "BucketTooLarge",
    "ClosedSession",
    "Counts",
    "DeadLetter",
    "InputSchemaError",
    "SessionEvents",
    "Summary",
    "UnknownStateVersion",
    "assemble",
    "to_session",
]
