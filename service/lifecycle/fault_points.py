"""Named points at which a test makes a service die, fail or hang. Nothing of it works outside of tests.

A service calls `reach(name)` between two of its steps. That reads one attribute, unless `[testing] fault_file` is set, which the
settings refuse for every database whose name does not begin with `test_`. The file is the test's plan: the faults that are still to come,
the first one first. A fault that is due is taken out of the plan, written down beside it (`<fault_file>.fired`) and only then done, so that
each fires once, however often the process dies and starts again; and one life of a process can meet many faults, because the plan is read
again at every point.
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
    "query.before_action": "callback entered, before Spark's action",
    "task.before_open": "task: before it takes what is open",
    "task.during_rebuild": "task: in the middle of a rebuild",
    "task.after_rebuild": "task: the open sessions were found again",
    "task.after_assembly": "task: a partition is assembled and transformed, what is open is not kept yet",
    "task.during_cache": "task: events of what is open are written, the table is not",
    "task.after_cache": "task: what is open is kept",
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
    "delivery.before_lease": "publisher: before it asks for the lease",
    "delivery.after_lease": "publisher: after the lease",
    "delivery.after_fencing": "publisher: after init_transactions, before the progress is read",
    "delivery.after_progress": "publisher: after the progress was read, before it is compared",
    "delivery.after_check": "publisher: Kafka and Postgres tell one history, a missing delivery is not recorded yet",
    "delivery.after_filling": "publisher: the missing delivery is recorded, the lane begins",
    "delivery.after_read": "publisher: rows were read, their topics not yet described",
    "delivery.after_admission": "publisher: what Kafka would refuse is parked, before the transaction begins",
    "transaction.after_begin": "publisher: Kafka's transaction has begun, nothing is sent",
    "transaction.during_produce": "publisher: in the middle of the rows",
    "transaction.before_progress": "publisher: after the last event, before the progress record",
    "transaction.before_flush": "publisher: after the progress record, before all is in Kafka",
    "transaction.before_commit": "publisher: all records are in Kafka, before its commit",
    "transaction.after_commit": "publisher: after Kafka's commit, before the delivery is recorded",
    "delivery.after_record": "publisher: after the delivery is recorded",
    "requeue.after_batch": "publisher parked requeue: after a batch, before the next one",
    "archive.during_file": "retention: a part of a file of the archive is written",
    "archive.after_file": "retention: a file of the archive is proven and has its name, the manifest is not written yet",
    "archive.after_manifest": "retention: a partition is archived and is still there",
    "retention.before_drop": "retention: a table partition is about to be dropped",
    "erasure.after_tombstones": "erasure: tombstones are in Kafka, their rows are not erased yet",
    "erasure.before_commit": "erasure: rows are erased, before COMMIT",
    "erasure.after_commit": "erasure: some rows are erased, more of the key are to go",
    "archive.before_rewrite": "erasure: the archive without the key is written, before COMMIT",
    "archive.after_rewrite": "erasure: the archive without the key is in force, the old files are still there",
    "retention.after_drop": "retention: the partition is gone, the next one is not looked at yet",
    "retention.during_pruning": "retention: some ledger rows are deleted, more are to go",
    "retention.after_ledger": "retention: the ledger is pruned, deliveries, processes and replays are not yet",
    "resume.before_binding": "resume: every lane is moved, a new cluster, server or topic not yet recorded",
    "replay.after_creation": "replay: it is made, nobody works on it yet",
    "replay.before_done": "replay: everything is sent, it is not marked as done",
}
"""{name: where it is}, in the order in which a process passes them. Every name that a service reaches and a plan uses is here."""

_POLL_S = 0.02


class Action(StrEnum):
    """The action at a point."""

    KILL = "kill"  # SIGKILL to the own process
    RAISE = "raise"  # InjectedFaultError
    PASS = "pass"  # nothing; the faults behind it in the plan count from here on
    HOLD = "hold"  # the thread waits until the test writes another plan, which counts from this point on


class InjectedFaultError(UnavailableError):
    """A fault that a test injected. It passes by itself, like a server that was away, and is treated as one."""


@dataclass(frozen=True)
class Fault:
    """One fault of a plan: at the `hit`-th time that the point is reached while this fault is the next one."""

    point: str
    action: Action
    hit: int = 1


class FaultPlan:
    """A test's plan and what became of it: the file of `[testing] fault_file` and the one beside it."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._fired = file.with_name(f"{file.name}.fired")
        self._lock = threading.Lock()
        self._counted: PlanVersion = None
        self._hits = 0

    def write(self, *faults: Fault) -> None:
        """Replace the plan, whole; what waits there continues. Raises SettingsError for a name that is not in POINTS."""
        for fault in faults:
            require_known(fault.point)
        self._replace(faults)

    def pending(self) -> list[Fault]:
        """The faults that are still to come. Raises SettingsError for a point that is not in POINTS."""
        try:
            entries = json.loads(self.file.read_text("utf-8"))
        except FileNotFoundError:
            return []
        faults = [Fault(entry["point"], Action(entry["action"]), entry["hit"]) for entry in entries]
        for fault in faults:
            require_known(fault.point)
        return faults

    def fired(self) -> list[tuple[Fault, int]]:
        """(fault, pid of the process that it hit) of all that fired so far, in their order."""
        if not self._fired.exists():
            return []
        lines = map(json.loads, self._fired.read_text("utf-8").splitlines())
        return [(Fault(line["point"], Action(line["action"]), line["hit"]), line["pid"]) for line in lines]

    def reach(self, point: str) -> None:
        """Do what is due at this point, if anything is."""
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
        """Count this hit. When the fault is due, take it out of the plan and write it down; return it and the plan that is left."""
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
            # The record before the plan: a test that sees the plan without the fault finds it recorded.
            with self._fired.open("a", encoding="utf-8") as log:
                log.write(json.dumps(asdict(pending[0]) | {"pid": os.getpid()}) + "\n")
            return pending[0], self._replace(pending[1:])

    def _replace(self, faults: Sequence[Fault]) -> "PlanVersion":
        """Replace the plan; return the version of the new one, whatever has replaced it since."""
        new = self.file.with_name(f"{self.file.name}.{os.getpid()}.new")
        new.write_text(json.dumps([asdict(fault) for fault in faults]), "utf-8")
        # Read before the new file has its name: the test may write the next plan at any moment from then on.
        version = _version(new)
        new.replace(self.file)
        return version

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Spark's workers are processes that follow one plan."""
        with self.file.with_name(f"{self.file.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


PlanVersion = tuple[int, int] | None
"""The version of a plan, which differs between two plans even of the same text; None without a plan."""


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
    """Whether a test injects faults into this process: for checks that are needless otherwise."""
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
