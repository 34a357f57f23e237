"""The Spark job: Kafka -> sessions -> transform -> Postgres outbox."""

from spark_job.api import Event, OutputEvent, Position, Session

__all__ = ["Event", "OutputEvent", "Position", "Session"]
