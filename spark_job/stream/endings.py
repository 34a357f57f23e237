"""How a query ends: the states, and who may cause each. Pure: query.py does what the states demand."""

import threading
from enum import IntEnum

from spark_job.ledger.requests import JobRequest


class State(IntEnum):
    """What a query is to do. It only increases, so that no thread can miss a change."""

    RUNNING = 0
    """Batches are computed and committed."""
    GROWING = 1
    """Enough batches of a reduced size succeeded: the run continues with another query, which takes larger ones."""
    STOPPING = 2
    """A signal, a command or another owner of the outbox ends the run."""
    FAILED = 3
    """A commit, a batch or Spark failed: the run ends with an error."""


class FailedPart(IntEnum):
    """What failed, in the order in which failures are reported: each may cause those that follow."""

    COMMIT = 0
    BATCH = 1
    SPARK = 2


class Interruption:
    """A reason to end the run that another thread has noticed. The process may continue."""

    def __init__(self) -> None:
        self.is_fenced = False
        """Another run owns the outbox."""
        self.request: JobRequest | None = None
        """A command's request, which can be fulfilled only between two batches."""

    def fence(self) -> None:
        """Stop because another run owns the outbox."""
        self.is_fenced = True

    def ask(self, request: JobRequest) -> None:
        """Stop before the next batch, so that a command's request can be done."""
        self.request = request

    @property
    def is_due(self) -> bool:
        """Whether the run is to end."""
        return self.is_fenced or self.request is not None


class QueryEnding:
    """The state of one query. Any thread may read it. The part that failed notes a failure; the thread that computes notes growth."""

    def __init__(self, stop: threading.Event, interruption: Interruption) -> None:
        """`stop`: set from outside, ends the run before the next batch."""
        self._stop = stop
        self._interruption = interruption
        self._has_grown = False
        self._failures: dict[FailedPart, BaseException] = {}
        self.computing = threading.Lock()
        """Held while a batch is computed. A batch begins only in RUNNING."""
        self.parked = threading.Event()
        """Set when Spark's thread has called with another batch, and waits for the query's end."""

    @property
    def state(self) -> State:
        """The query's state now."""
        if self._failures:
            return State.FAILED
        if self._stop.is_set() or self._interruption.is_due:
            return State.STOPPING
        return State.GROWING if self._has_grown else State.RUNNING

    @property
    def ends_run(self) -> bool:
        """Whether the run ends, too."""
        return self.state >= State.STOPPING

    @property
    def failure(self) -> BaseException | None:
        """The failure to report; None if nothing failed."""
        failures = dict(self._failures)
        return failures[min(failures)] if failures else None

    def grow(self) -> None:
        """Note that enough batches succeeded."""
        self._has_grown = True

    def fail(self, part: FailedPart, error: BaseException) -> None:
        """Note a part's failure. The part's first failure counts."""
        self._failures.setdefault(part, error)
