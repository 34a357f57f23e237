"""Named points at which a test makes a service die, fail or hang. They do nothing outside of tests.

A service calls `reach(name)` between two of its steps. That reads one attribute, unless `[testing] fault_file` is set, which the
settings refuse for every database whose name does not begin with `test_`. The file is the test's plan: a list of the pending faults, in
their order. When a fault is due, it is first appended to `<fault_file>.fired`, then removed from the plan, then executed. So each fault
fires once, even if the process dies and restarts. A process reads the plan at every point, so it can execute several faults.
"""

import difflib
import fcntl
import json
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from service.errors import SettingsError, UnavailableError

POINTS = {
    "start.begins": "before a start connects to anything",
    "start.after_take_over": "after the take-over",
    "start.after_decision": "after the decision where to resume",
    "start.after_generation": "after the generation's insert",
    "start.after_run": "after the run's record, before COMMIT",
    "start.after_commit": "after the start's COMMIT",
    "start.before_query": "before the query starts",
    "query.before_action": "the callback is entered, before Spark's action",
    "task.before_open": "task: before it opens its sessions",
    "task.during_rebuild": "task: in the middle of a rebuild",
    "task.after_rebuild": "task: the open sessions are rebuilt",
    "task.after_assembly": "task: a partition is assembled and transformed; its open sessions are not cached yet",
    "task.during_cache": "task: segments and chunks are written; the `.sessions` file that names them is not",
    "task.after_cache": "task: the open sessions are cached",
    "query.after_action": "after Spark's action",
    "sink.before_transaction": "before the batch's transaction",
    "sink.after_lock": "after the writer lock",
    "sink.after_continuity": "after the continuity check",
    "sink.during_copy": "in the middle of the rows' COPY",
    "sink.after_copy": "after COPY",
    "sink.after_dead_letters": "after the dead letters",
    "sink.after_ledger": "after the ledger rows, before COMMIT",
    "sink.after_commit": "after COMMIT",
    "query.after_batch": "after the batch, before the next commit",
    "delivery.before_lease": "publisher: before it requests the lease",
    "delivery.after_lease": "publisher: after the lease",
    "delivery.after_fencing": "publisher: after init_transactions, before the progress is read",
    "delivery.after_progress": "publisher: after the progress was read, before it is compared",
    "delivery.after_check": "publisher: Kafka and Postgres agree; a delivery that Postgres lacks is not recorded yet",
    "delivery.after_filling": "publisher: the missing delivery is recorded; the lane begins",
    "delivery.after_read": "publisher: rows are read; their topics are not described yet",
    "delivery.after_admission": "publisher: rows that Kafka would refuse are parked; the transaction has not begun",
    "transaction.after_begin": "publisher: Kafka's transaction has begun; nothing is sent",
    "transaction.during_produce": "publisher: in the middle of the rows",
    "transaction.before_progress": "publisher: after the last event, before the progress record",
    "transaction.before_flush": "publisher: after the progress record, before all records are in Kafka",
    "transaction.before_commit": "publisher: all records are in Kafka, before Kafka's commit",
    "transaction.after_commit": "publisher: after Kafka's commit, before the delivery is recorded",
    "delivery.after_record": "publisher: after the delivery is recorded",
    "requeue.after_batch": "publisher parked requeue: after a batch, before the next one",
    "archive.during_file": "retention: an archive file is partly written",
    "archive.after_file": "retention: an archive file is checked and has its name; the manifest is not written yet",
    "archive.after_manifest": "retention: a partition is archived and not dropped yet",
    "retention.before_drop": "retention: a table partition is about to be dropped",
    "retention.after_drop": "retention: a partition is dropped; the next one is not examined yet",
    "retention.during_pruning": "retention: some ledger rows are deleted, others are still to be deleted",
    "retention.after_ledger": "retention: the ledger is pruned; deliveries, processes and replays are not yet",
    "erasure.after_tombstones": "erasure: tombstones are in Kafka; their rows are not erased yet",
    "erasure.before_commit": "erasure: rows are erased, before COMMIT",
    "erasure.after_commit": "erasure: some rows of a key are erased, others are still to be erased",
    "archive.after_tombstones": "erasure: tombstones of archived rows are in Kafka; the archive still has the rows",
    "archive.before_rewrite": "erasure: the archive without the key is written, before COMMIT",
    "archive.after_rewrite": "erasure: the archive without the key is in force; the old files are not deleted yet",
    "resume.before_binding": "resume: every lane is moved; a new cluster, server or topic is not recorded yet",
    "replay.after_creation": "replay: it is created; no process works on it yet",
    "replay.before_done": "replay: all its rows are sent; it is not marked as done yet",
}
"""{name: where it is}. `reach` and every plan accept only these names."""

_POLL_S = 0.02


class Action(StrEnum):
    """The action at a point."""

    KILL = "kill"  # SIGKILL to the own process
    RAISE = "raise"  # InjectedFaultError
    PASS = "pass"  # nothing happens; hits of the following faults are counted from this point
    HOLD = (
        "hold"  # the thread waits until the test writes another plan, whose hits are counted from this point
    )


class InjectedFaultError(UnavailableError):
    """A fault that a test injected. The process handles it like a server outage and retries."""


@dataclass(frozen=True)
class Fault:
    """One fault of a plan. It fires at the `hit`-th pass of `point`, counted from when it became the plan's first fault."""

    point: str
    action: Action
    hit: int = 1


class FaultPlan:
    """A test's plan, `[testing] fault_file`, and the record of the faults that fired, the file beside it."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._fired = file.with_name(f"{file.name}.fired")
        self._lock = threading.Lock()
        self._counted: PlanVersion = None
        self._hits = 0

    def write(self, *faults: Fault) -> None:
        """Replace the whole plan. Threads that wait at a HOLD continue. Raises SettingsError for a name that is not in POINTS."""
        for fault in faults:
            require_known(fault.point)
        self._replace(faults)

    def pending(self) -> list[Fault]:
        """Return the pending faults. Raises SettingsError for a point that is not in POINTS."""
        try:
            entries = json.loads(self.file.read_text("utf-8"))
        except FileNotFoundError:
            return []
        faults = [Fault(entry["point"], Action(entry["action"]), entry["hit"]) for entry in entries]
        for fault in faults:
            require_known(fault.point)
        return faults

    def fired(self) -> list[tuple[Fault, int]]:
        """Return (fault, pid of the process that it hit) of each fault that has fired, in their order."""
        if not self._fired.exists():
            return []
        lines = map(json.loads, self._fired.read_text("utf-8").splitlines())
        return [(Fault(line["point"], Action(line["action"]), line["hit"]), line["pid"]) for line in lines]

    def reach(self, point: str) -> None:
        """Execute the fault that is due at this point, if any."""
        taken = self._take(point)
        if taken is None:
            return
        fault, left = taken
        if fault.action == Action.PASS:
            return
        if fault.action == Action.KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        if fault.action == Action.RAISE:
            raise InjectedFaultError(f"a test let this process fail at {point} ({POINTS[point]})")
        while _version(self.file) == left:
            time.sleep(_POLL_S)
        self.reach(point)  # the new plan may begin right here

    def _take(self, point: str) -> "tuple[Fault, PlanVersion] | None":
        """Count this hit. If the fault is due, record it and remove it from the plan; return it and the version of the remaining plan."""
        with self._lock, self._alone():
            version = _version(self.file)
            pending = self.pending()
            if not pending or pending[0].point != point:
                return None
            if version != self._counted:
                self._counted, self._hits = version, 0
            self._hits += 1
            if self._hits < pending[0].hit:
                return None
            # Write the record before the plan: a test that reads a plan without the fault then also finds its record.
            with self._fired.open("a", encoding="utf-8") as log:
                log.write(json.dumps(asdict(pending[0]) | {"pid": os.getpid()}) + "\n")
            return pending[0], self._replace(pending[1:])

    def _replace(self, faults: Sequence[Fault]) -> "PlanVersion":
        """Replace the plan; return this plan's version, even if another plan has replaced it meanwhile."""
        new = self.file.with_name(f"{self.file.name}.{os.getpid()}.new")
        new.write_text(json.dumps([asdict(fault) for fault in faults]), "utf-8")
        # Read before the new file gets its name: from then on the test may replace it at any moment.
        version = _version(new)
        new.replace(self.file)
        return version

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the plan's file lock: all of Spark's workers share one plan."""
        with self.file.with_name(f"{self.file.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


PlanVersion = tuple[int, int] | None
"""The version of a plan: two plans differ in it even if their text is the same. None without a plan."""


def _version(file: Path) -> PlanVersion:
    try:
        status = file.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns


_plan: FaultPlan | None = None


def arm(file: Path | None) -> None:
    """Make the points follow the plan in `file`, or do nothing again (None)."""
    global _plan
    _plan = None if file is None else FaultPlan(file)


def is_armed() -> bool:
    """Return whether a test injects faults into this process, which then makes checks that are needless otherwise."""
    return _plan is not None


def reach(point: str) -> None:
    """Pass a point. Does nothing unless armed."""
    if _plan is not None:
        require_known(point)
        _plan.reach(point)


def require_known(point: str) -> None:
    """Raise SettingsError with the nearest known name for a point that does not exist."""
    if point not in POINTS:
        near = difflib.get_close_matches(point, POINTS, 1)
        raise SettingsError(
            f"unknown fault point {point!r}" + (f": did you mean {near[0]!r}?" if near else "")
        )
