"""The Spark job: Kafka -> sessions -> transform -> Postgres outbox.

- api.py, models.py: what a transform sees. job.py: the flow of an attempt, on one screen. cli.py, __main__.py: the commands.

In the order of the data, then of a run (each folder's `__init__.py` says more):

- input/: the input topics, their offsets, and the records of a batch.
- sessions/: the pure assembler: parses records, opens, closes and refuses sessions.
- outputs/: from a closed session to its stored row: transform, encoding, COPY format.
- assembly/: one Spark task: finds or rebuilds the open sessions, assembles, caches them.
- ledger/: the outbox's positions, runs, generations and rules of assembly; which process owns it.
- recovery/: a start: reads Kafka and the ledger, finds what a person must accept, decides where to continue.
- sink/: the one Postgres transaction of a batch.
- stream/: the query: its batches, their pace, and how it ends.
- supervisor/: attempts, restarts, the standby. failures/: what an error means.
- spark/: the Spark session, its JVM, jars and options.
- dead_letters/, savepoints/, trial/, testing/, commands/: what people run.
- monitoring/, status/: what the job measures, and shows.
"""

from spark_job.api import Event, OutputEvent, OutputSchema, Position, Session, WithSchema
from spark_job.models import EventError

__all__ = ["Event", "EventError", "OutputEvent", "OutputSchema", "Position", "Session", "WithSchema"]
