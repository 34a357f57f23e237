"""How an attempt may end: the job's own errors, each with an exit code of its own (docs/operations.md)."""

from service.errors import OutboxError


class JobFailedError(OutboxError):
    """The Spark query failed for a reason that this job does not know."""

    exit_code = 10


class TransformFailedError(OutboxError):
    """The transform raised and `[transform] on_error` is "stop"."""

    exit_code = 11


class BatchTooLargeError(OutboxError):
    """A batch did not fit in memory; the next attempt takes a smaller one."""

    exit_code = 13


class DiskFullError(OutboxError):
    """No space is left for Spark's work files."""

    exit_code = 14


class SparkLostError(OutboxError):
    """The JVM in which Spark runs is gone."""

    exit_code = 15


class WorkerDiedError(OutboxError):
    """Spark's Python workers or executors ended by themselves, several times in one batch."""

    exit_code = 17


class SmallestBatchError(OutboxError):
    """Not even a batch of one event gets through."""

    exit_code = 20


class WorkerCodeChangedError(OutboxError):
    """The code of a worker is not that of the run."""

    exit_code = 18


class DefectError(OutboxError):
    """The job's own code raised what it never should."""

    exit_code = 21


class ExhaustedError(OutboxError):
    """No more descriptors or threads are to be had: another process may have what this one holds."""

    exit_code = 22


class SparkStartError(SparkLostError):
    """Spark's JVM did not start."""
