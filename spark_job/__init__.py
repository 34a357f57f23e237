"""The Spark job: Kafka -> sessions -> transform -> Postgres outbox."""

from spark_job.api import Event, OutputEvent, OutputSchema, Position, Session, WithSchema
from spark_job.models import EventError

__all__ = ["Event", "EventError", "OutputEvent", "OutputSchema", "Position", "Session", "WithSchema"]
