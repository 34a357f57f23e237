"""How a query ends: what ends it on purpose, and which of several failures is the one to tell."""

from spark_job.recovery.requests import JobRequest


class StopRequestedError(Exception):
    """Ends the query between two batches: raised instead of beginning another one."""


class LargerBatchesError(Exception):
    """Ends the query between two batches, so that the next one takes more events at once."""


class DroppedError(Exception):
    """A batch that was held back is not committed: its query has ended, for a reason that is told elsewhere."""


MEANT = (StopRequestedError, LargerBatchesError)


class Interruption:
    """What another thread has found that ends the run, though the process may go on."""

    def __init__(self) -> None:
        self.is_fenced = False
        """Another run owns the outbox."""
        self.request: JobRequest | None = None
        """What a command asks, which can be done between two batches only."""

    def fence(self) -> None:
        """Stop because another run owns the outbox."""
        self.is_fenced = True

    def ask(self, request: JobRequest) -> None:
        """Stop before the next batch, so that what a command asks can be done."""
        self.request = request

    @property
    def is_due(self) -> bool:
        """Whether the run is to end."""
        return self.is_fenced or self.request is not None


def first_failure(
    commit: BaseException | None, callback: BaseException | None, spark: BaseException | None
) -> BaseException | None:
    """Return what ended a query: a failure before what was meant, the commit's before the callback's.

    `spark`: what Spark says, which repeats the callback's failure where there is one.
    """
    if callback is None or isinstance(callback, DroppedError):
        callback = spark
    told = [
        error for error in (commit, callback) if error is not None and not isinstance(error, DroppedError)
    ]
    return next((error for error in told if not isinstance(error, MEANT)), told[0] if told else None)
