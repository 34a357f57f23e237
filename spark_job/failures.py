"""From what ended the query to an error that says what to do."""

import psycopg

from db.errors import OutboxError, UnavailableError


class JobFailedError(OutboxError):
    """The Spark query failed for a reason that this job does not know."""

    exit_code = 10


# (text in Spark's message, what it means and what mends it)
_KNOWN = (
    (
        "Some data may have been lost",
        "Kafka has deleted offsets that the job still needs, or the topic was made again",
    ),
    ("BucketTooLarge", "the open sessions of one bucket outgrew [session] max_bucket_bytes"),
    ("TransformStoppedError", 'the transform failed and [transform] on_error is "stop"'),
    ("UnknownStateVersion", "the state in the checkpoint was written by another version"),
    ("OutOfMemoryError", "Spark ran out of memory: lower [job] max_events_per_batch or raise driver_memory"),
    ("No space left on device", "the disk of the checkpoint or of Spark's work folder is full"),
)


def explain(error: BaseException) -> OutboxError:
    """Return the error to end the process with. Nothing was committed by the failed batch: a start repeats it from its plan."""
    if isinstance(error, OutboxError):
        return error
    if isinstance(error, psycopg.OperationalError):
        return UnavailableError(
            f"Postgres failed during a batch: {str(error).strip()}. The batch is either whole in the outbox or not there; the next start "
            "finds out. Start again when Postgres is back."
        )
    text = str(error)
    for sign, meaning in _KNOWN:
        if sign in text:
            return JobFailedError(f"{meaning}. {_relevant(text, sign)}")
    return JobFailedError(f"the Spark query failed: {text[-2_000:]}")


def _relevant(text: str, sign: str) -> str:
    """The lines around the sign: Spark's message holds the Python traceback of the worker as well."""
    lines = text.splitlines()
    at = next(index for index, line in enumerate(lines) if sign in line)
    return " ".join(line.strip() for line in lines[at : at + 3])
