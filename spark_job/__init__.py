"""The Spark job: Kafka -> sessions -> transform -> Postgres outbox."""

from spark_job.api import Event, OutputEvent, OutputSchema, Position, Session, WithSchema

__all__ = ["Event", "OutputEvent", "OutputSchema", "Position", "Session", "WithSchema"]
