"""Where a job is, read from outside: the ledger, and what the job has said of it. What a fault left, and what the next life made of it."""

import re
from enum import StrEnum
from typing import NamedTuple, Self

from tests.support.pipeline import verdict
from tests.support.pipeline.pipeline import Pipeline
from tests.support.queries import query
from tests.support.reading import end_offsets
from tests.support.waiting import wait_until

_REPORTED = re.compile(r"batch_committed\b.*?\bbatch=(\d+)")
_REBUILT = re.compile(r"open_sessions_rebuilt\b.*?\bevents=(\d+)")


class Kind(StrEnum):
    """What a fault left of the batch in hand."""

    NOTHING = "no generation yet"
    UNUSED = "a generation without a batch"
    AGREED = "the ledger ends with the batch that the job reported last"
    UNHEARD = "the ledger has the whole batch, the job has never heard of it"


class State(NamedTuple):
    """The newest generation (0: none), its batches and all, the runs, and what the job's log says."""

    generation: int
    of_generation: int
    batches: int
    runs: int
    unheard: int
    """Batches of the ledger that no run has reported."""
    end: dict[int, int]
    """{partition: offset} up to which the ledger has dealt with the input."""
    rebuilt: list[int]
    """Events that were read again, of each batch for which that was needed."""

    @classmethod
    def read(cls, pipeline: Pipeline) -> Self:
        """Look at the outbox and the log."""
        ((generation, of_generation, batches, runs),) = pipeline.ask(
            "SELECT g.generation, count(b) FILTER (WHERE b.generation = g.generation), count(b), (SELECT count(*) FROM outbox.run)"
            " FROM (SELECT coalesce(max(generation), 0) AS generation FROM outbox.generation) g"
            " LEFT JOIN outbox.batch b ON b.kind = 'stream' AND b.part = 0 GROUP BY g.generation"
        )
        log = pipeline.job.log()
        reported = _reported(log)
        stored = {
            row[0]
            for row in pipeline.ask("SELECT max(batch_id) FROM outbox.batch GROUP BY run_id, spark_batch")
        }
        rebuilt = [int(found) for found in _REBUILT.findall(log)]
        return cls(
            generation, of_generation, batches, runs, len(stored - reported), pipeline.ledger_end(), rebuilt
        )

    def kind(self, before: Self) -> Kind:
        """What a fault has left that found the job in the state `before`."""
        if self.generation == 0:
            return Kind.NOTHING
        if self.of_generation == 0:
            return Kind.UNUSED
        assert self.unheard - before.unheard in (0, 1), (
            f"more than the batch in hand was not reported: {before}, {self}"
        )
        return Kind.UNHEARD if self.unheard > before.unheard else Kind.AGREED


def has_told_all(pipeline: Pipeline) -> bool:
    """Whether the newest run has reported all its batches: the ledger has each a moment before."""
    rows = pipeline.ask(
        "SELECT max(batch_id) FROM outbox.batch WHERE run_id = (SELECT run_id FROM outbox.run ORDER BY number DESC LIMIT 1)"
        " GROUP BY spark_batch"
    )
    return {row[0] for row in rows} <= _reported(pipeline.job.log())


def _reported(log: str) -> set[int]:
    return {int(found) for found in _REPORTED.findall(log)}


def input_ends(pipeline: Pipeline) -> dict[int, int]:
    """{partition: end offset} of the input as it is now."""
    ends = end_offsets(pipeline.bootstrap, [pipeline.input], committed=True)
    return {partition: end for (_, partition), end in ends.items()}


def resumed_at(pipeline: Pipeline, number: int) -> dict[int, int]:
    """{partition: offset} where a run began, the first one is 0."""
    ((found,),) = pipeline.ask("SELECT resumes_at FROM outbox.run ORDER BY number OFFSET %s LIMIT 1", number)
    return {int(partition): offset for partition, offset in found[pipeline.input_topic.id()].items()}


def assert_nothing_half_way(pipeline: Pipeline) -> None:
    """Fail on a half batch, an open transaction or a lock of the job, a prepared transaction, a staging table."""
    verdict.assert_ledger_agrees(pipeline.dsn)
    # A heartbeat is one, too, for a moment; what is left behind does not end by itself.
    wait_until(
        lambda: not open_transactions(pipeline),
        lambda: f"no open transaction: {open_transactions(pipeline)}",
        10,
    )
    assert query(pipeline.dsn, "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()") == []
    assert query(pipeline.dsn, "SELECT relname FROM pg_class WHERE relpersistence = 't'") == []
    locks = query(
        pipeline.dsn,
        "SELECT locktype, mode FROM pg_locks WHERE relation = to_regclass('outbox.writer_lock') AND database ="
        " (SELECT oid FROM pg_database WHERE datname = current_database())",
    )
    assert locks == [], f"the writer lock is held: {locks}"


def open_transactions(pipeline: Pipeline) -> list[tuple[str, str]]:
    """(name, query) of the job's connections that are in a transaction."""
    return pipeline.ask(
        "SELECT application_name, query FROM pg_stat_activity WHERE datname = current_database()"
        " AND application_name LIKE 'spark-job%%' AND xact_start IS NOT NULL"
    )
