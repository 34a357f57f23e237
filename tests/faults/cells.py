"""The job's cells: which fault, in which situation, and what it must leave."""

from collections.abc import Sequence
from typing import NamedTuple

from db.fault_points import Action
from tests.faults.matrix import Row
from tests.faults.state import Kind

BEFORE_THE_STARTS_COMMIT = (
    "start.begins",
    "start.after_take_over",
    "start.after_decision",
    "start.after_generation",
    "start.after_run",
)


class Cell(NamedTuple):
    """One fault and what it must leave."""

    point: str
    leaves: Kind
    hit: int = 1
    with_rows: bool = False  # in a batch that writes rows, so that there is something to lose
    loses: bool = False  # the checkpoint directories are deleted just before


class Situation(NamedTuple):
    """Cells that follow one another."""

    title: str
    cells: Sequence[Cell]
    after: str | None = None  # the fault that makes the situation
    one_by_one: bool = False  # the job recovers after each; else each hits the recovery from the one before

    def rows(self, action: Action) -> list[Row]:
        """As they are shown."""
        return [Row(self.title, cell.point, action.value, cell.hit) for cell in self.cells]


NEW_BATCH = Situation(
    "a new batch",
    (
        Cell("query.before_action", Kind.PLANNED),
        Cell("query.before_action", Kind.PLANNED, hit=2),  # after Spark's commit of the batch before
        Cell("query.after_action", Kind.PLANNED),
        Cell("sink.before_transaction", Kind.PLANNED),
        Cell("sink.after_lock", Kind.PLANNED),
        Cell("sink.after_continuity", Kind.PLANNED),
        Cell("sink.during_copy", Kind.PLANNED, hit=5),
        Cell("sink.after_copy", Kind.PLANNED, with_rows=True),
        Cell("sink.after_dead_letters", Kind.PLANNED, with_rows=True),
        Cell("sink.after_buckets", Kind.PLANNED, with_rows=True),
        Cell("sink.after_ledger", Kind.PLANNED, with_rows=True),
        Cell("sink.after_commit", Kind.STORED, with_rows=True),
        Cell("query.before_return", Kind.STORED, with_rows=True),
        Cell("query.after_spark_commit", Kind.COMMITTED, with_rows=True),
    ),
    one_by_one=True,
)
REPEATED_BATCH = Situation(
    "a batch stored before",
    (
        Cell("query.before_action", Kind.STORED),
        Cell("query.after_action", Kind.STORED),
        Cell("sink.after_lock", Kind.STORED),
        Cell("sink.after_comparison", Kind.STORED),
        Cell("query.before_return", Kind.STORED),
    ),
    after="sink.after_commit",
)
FIRST_START = Situation(
    "the first start",
    (
        Cell("start.begins", Kind.NOTHING),
        Cell("start.after_take_over", Kind.NOTHING),
        Cell("start.after_decision", Kind.NOTHING),
        Cell("start.after_generation", Kind.NOTHING),
        Cell("start.after_run", Kind.NOTHING),
        Cell("start.after_commit", Kind.UNUSED),
        Cell("start.before_query", Kind.UNUSED),
    ),
)
RESTART = Situation(
    "a restart",
    (
        Cell("start.begins", Kind.STORED),
        Cell("start.after_take_over", Kind.STORED),
        Cell("start.after_decision", Kind.STORED),
        Cell("start.after_run", Kind.STORED),
        Cell("start.after_commit", Kind.STORED),
        Cell("start.before_query", Kind.STORED),
    ),
    after="sink.after_commit",
)
LOST_CHECKPOINT = Situation(
    "checkpoint lost",
    (
        Cell("start.begins", Kind.LOST, loses=True),
        Cell("start.after_take_over", Kind.LOST),
        Cell("start.after_decision", Kind.LOST),
        Cell("start.after_generation", Kind.LOST),
        Cell("start.after_run", Kind.LOST),
        Cell("start.after_commit", Kind.UNUSED),
        Cell("start.before_query", Kind.UNUSED),
        Cell("sink.after_ledger", Kind.PLANNED, with_rows=True),
    ),
    after="sink.after_ledger",
)
LOST_AGAIN = Situation(
    "lost again, catching up",
    (
        Cell("sink.during_copy", Kind.PLANNED, loses=True, hit=5),
        Cell("sink.after_commit", Kind.STORED, with_rows=True, loses=True),
        Cell("start.after_generation", Kind.LOST, loses=True),
        Cell("query.before_return", Kind.STORED),
        Cell("sink.after_comparison", Kind.STORED),
        Cell("start.before_query", Kind.UNUSED, loses=True),
    ),
    after="sink.after_commit",
)

GROUPS: dict[str, tuple[Situation, ...]] = {
    "the job's batches": (NEW_BATCH, REPEATED_BATCH),
    "the job's starts": (FIRST_START, RESTART, LOST_CHECKPOINT, LOST_AGAIN),
}
"""{title: situations that share a pipeline}"""
