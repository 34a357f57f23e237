"""Turn what ended an attempt into an error that says what happened and how to fix it; tell whether a smaller batch may help."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from confluent_kafka import KafkaError, KafkaException
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from service.errors import (
    BatchTooLargeError,
    DiskFullError,
    ExhaustedError,
    OutboxError,
    SparkLostError,
    SparkStartError,
    WorkerDiedError,
    reason_of,
)
from spark_job.failures.client_errors import of_kafka, of_postgres
from spark_job.failures.spark_text import EXHAUSTED, defect, explain_text
from spark_job.outputs.lacking import lacking
from spark_job.spark import jvm

SMALLER_MAY_PASS = (BatchTooLargeError, WorkerDiedError)
"""After these errors an attempt with fewer events may succeed, unless the batch had a single event."""
_OF_SIZE = (*SMALLER_MAY_PASS, DiskFullError, SparkLostError)


def is_of_size(error: OutboxError) -> bool:
    """Tell whether the size of a batch can explain the error, so that the next attempt takes a smaller batch."""
    return isinstance(error, _OF_SIZE) and not isinstance(error, SparkStartError)


def explain(error: BaseException) -> OutboxError:
    """Return an error that explains what ended the attempt. The next attempt begins where the ledger ends."""
    if isinstance(error, OutboxError):
        return error
    if (short := _without_resources(error)) is not None:
        return short
    if isinstance(error, psycopg.Error):
        return of_postgres(error)
    if isinstance(error, KafkaException):
        return of_kafka(error)
    gone = jvm.lost(error)
    if gone is not None:
        return _without_jvm(gone)
    if isinstance(error, PySparkException | Py4JError | OSError):
        return explain_text(error)
    return defect(reason_of(error))  # no other code in this process can raise it


@contextmanager
def explained() -> Iterator[None]:
    """Turn errors of the servers' clients, of missing resources and of a JVM that is gone into an OutboxError."""
    try:
        yield
    except (psycopg.Error, KafkaException, PySparkException, Py4JError) as error:
        raise explain(error) from error
    except (OSError, RuntimeError, MemoryError) as error:
        # A call to a JVM that is gone fails at its socket.
        if _without_resources(error) is None and jvm.lost(error) is None:
            raise
        raise explain(error) from error


def _without_resources(error: BaseException) -> OutboxError | None:
    """Return the error if this process itself lacked memory, a descriptor, a thread or room on a disk."""
    kind = lacking(error)
    if kind is DiskFullError:
        return DiskFullError(
            f"the disk of this process' work files is full: {reason_of(error)}. Make room, or move them with TMPDIR"
        )
    if kind is BatchTooLargeError:
        return BatchTooLargeError(
            f"this process ran out of memory: {reason_of(error)}. The next attempt takes a quarter of the events"
        )
    text = str(error)
    if (
        kind is ExhaustedError
        # libpq reports it as text, librdkafka by a code.
        or (isinstance(error, psycopg.OperationalError) and os.strerror(errno.EMFILE) in text)
        or (isinstance(error, KafkaException) and error.args[0].code() == KafkaError._CRIT_SYS_RESOURCE)
    ):
        return ExhaustedError(f"{EXHAUSTED}. {type(error).__name__}: {text}")
    return None


def _without_jvm(gone: jvm.LostJvm) -> OutboxError:
    if gone.out_of_memory:
        return BatchTooLargeError(
            f"Spark's JVM ran out of memory ({gone}). The next attempt takes a quarter of the events; more [job] driver_memory "
            "prevents this."
        )
    return SparkLostError(
        f"Spark's JVM is gone ({gone}). A batch that was being written is either complete in the outbox or absent; the next attempt "
        "checks. If the system ended it for lack of memory, the machine or container needs more than [job] driver_memory."
    )
