"""Where a job is, read from outside: the checkpoint's logs against the ledger. What a fault left, and what the next life made of it."""

import json
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, Self

from tests.acceptance import verdict
from tests.acceptance.pipeline import Pipeline
from tests.integration.publisher.harness import query


class Kind(StrEnum):
    """What a fault found of the batch in hand, by both logs."""

    PLANNED = "planned, not in the outbox"
    STORED = "in the outbox, not in Spark's log"
    COMMITTED = "in the outbox and in Spark's log"
    UNUSED = "generation without a batch"
    NOTHING = "no generation yet"
    LOST = "no checkpoint of the ledger's batches"


class State(NamedTuple):
    """The newest generation (0: none), its Spark batches (-1: none), and the batches that Spark ran again after they were stored."""

    generation: int
    planned: int
    stored: int
    committed: int
    plan: str | None
    """Spark's offset log entry of the newest planned batch."""
    repeated: frozenset[tuple[int, int]]
    """(generation, Spark batch)"""

    @classmethod
    def read(cls, pipeline: Pipeline) -> Self:
        """Look at both."""
        repeated = pipeline.ask(
            "SELECT generation, spark_batch FROM outbox.batch WHERE recomputed_at IS NOT NULL"
        )
        newest = pipeline.ask(
            "SELECT generation, 'gen-' || generation || '-' || directory_token,"
            " (SELECT coalesce(max(spark_batch), -1) FROM outbox.batch b WHERE b.generation = g.generation AND kind = 'stream')"
            " FROM outbox.generation g ORDER BY generation DESC LIMIT 1"
        )
        if not newest:
            return cls(0, -1, -1, -1, None, frozenset())
        generation, folder, stored = newest[0]
        directory = pipeline.checkpoint / folder
        planned = _newest(directory / "offsets")
        plan = None if planned < 0 else (directory / "offsets" / str(planned)).read_text("utf-8")
        committed = _newest(directory / "commits")
        return cls(generation, planned, int(stored), committed, plan, frozenset(map(tuple, repeated)))

    @property
    def kind(self) -> Kind:
        """What both logs say. Raises AssertionError for what no crash can leave."""
        if self.generation == 0:
            return Kind.NOTHING
        if self.planned == self.stored == self.committed == -1:
            return Kind.UNUSED
        if self.planned == self.stored + 1 and self.committed == self.stored:
            return Kind.PLANNED
        if self.planned == self.committed == -1 < self.stored:
            return Kind.LOST
        if self.planned == self.stored == self.committed + 1:
            return Kind.STORED
        assert self.planned == self.stored == self.committed, f"checkpoint and ledger do not fit: {self}"
        return Kind.COMMITTED

    def __str__(self) -> str:
        """For the table."""
        if self.kind in (Kind.NOTHING, Kind.UNUSED, Kind.LOST):
            return str(self.kind)
        return f"Spark batch {self.planned} {self.kind}"

    def planned_ends(self) -> dict[int, int]:
        """{partition: end offset} of the newest planned batch; the pipelines have one input topic."""
        assert self.plan is not None
        (topic,) = json.loads(self.plan.splitlines()[2]).values()
        return {int(partition): end for partition, end in topic.items()}


def input_ends(pipeline: Pipeline) -> dict[str, int]:
    """{partition: end offset} of the input as it is now."""
    ends = verdict.ends(pipeline.bootstrap, [pipeline.input], committed=True)
    return {str(partition): end for (_, partition), end in ends.items()}


def is_caught_up(pipeline: Pipeline, ends: dict[str, int]) -> bool:
    """Whether the ledger has dealt with the input up to `ends`, and Spark has committed all of it."""
    rows = pipeline.ask(
        "SELECT done_offsets FROM outbox.batch WHERE kind = 'stream' ORDER BY batch_id DESC LIMIT 1"
    )
    if not rows:
        return False
    (done,) = rows[0][0].values()
    if any(done.get(partition, 0) < end for partition, end in ends.items()):
        return False
    state = State.read(pipeline)
    return state.planned == state.stored == state.committed


def assert_nothing_half_way(pipeline: Pipeline) -> None:
    """Fail on a half batch, an open transaction or a lock of the job, a prepared transaction, a staging table."""
    verdict.assert_ledger_agrees(pipeline.dsn)
    assert not open_transactions(pipeline)
    assert query(pipeline.dsn, "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()") == []
    assert query(pipeline.dsn, "SELECT relname FROM pg_class WHERE relpersistence = 't'") == []
    locks = query(
        pipeline.dsn,
        "SELECT locktype, mode FROM pg_locks WHERE locktype = 'advisory' AND database ="
        " (SELECT oid FROM pg_database WHERE datname = current_database())",
    )
    assert locks == [], f"the writer lock is held: {locks}"


def open_transactions(pipeline: Pipeline) -> list[tuple[str, str]]:
    """(name, query) of the job's connections that are in a transaction."""
    return pipeline.ask(
        "SELECT application_name, query FROM pg_stat_activity WHERE datname = current_database()"
        " AND application_name LIKE 'spark-job%%' AND xact_start IS NOT NULL"
    )


def _newest(log: Path) -> int:
    names = [entry.name for entry in log.iterdir()] if log.exists() else []
    return max((int(name) for name in names if name.isdigit()), default=-1)
