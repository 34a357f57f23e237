"""`spark-job status`: what the outbox says of the job, from SQL alone."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from psycopg.rows import dict_row
from rich.markup import escape
from rich.table import Table

from db.connection import connect
from db.migrate import require_current
from db.settings import Settings
from db.statements import statement
from spark_job import ledger, runs
from spark_job.ledger import Generation, StreamBatch
from spark_job.runs import Run
from spark_job.writer import Owner, read_owner


class Rate(NamedTuple):
    """What was committed to the outbox within the last `seconds`, retries of dead letters included."""

    seconds: int
    batches: int
    input_events: int
    sessions: int
    output_events: int
    dead_letters: int
    duplicate_events: int

    def __str__(self) -> str:
        """Return the same for people."""
        means = self.to_json()
        return (
            f"{self.batches:,} batches, {self.input_events:,} events ({means['input_events_per_second']:,.1f}/s), {self.sessions:,} "
            f"sessions ({means['sessions_per_second']:,.1f}/s), {self.output_events:,} outputs, {self.dead_letters:,} dead letters"
        )

    def to_json(self) -> dict[str, float]:
        """Return the same with the means over the whole time."""
        return self._asdict() | {
            "input_events_per_second": round(self.input_events / self.seconds, 1),
            "sessions_per_second": round(self.sessions / self.seconds, 1),
        }


@dataclass(frozen=True)
class Status:
    """One look at writer, generation, ledger, open sessions and open dead letters."""

    owner: Owner
    alive: bool
    generation: Generation | None
    newest: StreamBatch | None
    open_work: dict[str, int]
    open_letters: dict[str, int]
    run: Run | None
    rates: list[Rate]

    def to_json(self) -> dict[str, Any]:
        """Return the same as JSON-ready values; offsets as `{topic id: {partition: offset}}`."""
        generation, newest = self.generation, self.newest
        return {
            "alive": self.alive,
            "run": str(self.owner.run_id) if self.owner.run_id else None,
            "host": self.owner.host,
            "pid": self.owner.pid,
            "heartbeat_age_s": self.owner.heartbeat_age_s,
            "held_back_since": self.owner.held_back_since.isoformat() if self.owner.held_back_since else None,
            "held_back_because": self.owner.held_back_because,
            "start": self.run.to_json() if self.run else None,
            "generation": generation.number if generation else None,
            "reason": generation.reason if generation else None,
            "policy": generation.policy if generation else None,
            "revision": generation.revision if generation else None,
            "buckets": generation.buckets if generation else None,
            "shuffle_partitions": generation.shuffle_partitions if generation else None,
            "batch": newest.batch_id if newest else None,
            "spark_batch": newest.spark_batch if newest else None,
            "committed_at": newest.created_at.isoformat() if newest else None,
            "end_offsets": newest.end.to_json() if newest else None,
            "done_offsets": newest.done.to_json() if newest else None,
            "safe_offsets": newest.safe.to_json() if newest else None,
            "open": self.open_work,
            "open_dead_letters": self.open_letters,
            "rates": [rate.to_json() for rate in self.rates],
        }


def read(settings: Settings) -> Status:
    """Ask the outbox. Raises UnavailableError or SchemaError."""
    with connect(settings.postgres, "spark-job status") as connection:
        require_current(connection)
        owner = read_owner(connection)
        generation = ledger.newest_generation(connection)
        newest = ledger.newest_stream_batch(connection, generation.number) if generation else None
        with connection.cursor(row_factory=dict_row) as cursor:
            number = {"generation": generation.number if generation else None}
            open_work = cursor.execute(statement("spark_job", "open_work"), number).fetchone() or {}
        letters = connection.execute(statement("spark_job", "open_letters")).fetchall()
        run = runs.newest(connection)
        rates = [Rate(*row) for row in connection.execute(statement("spark_job", "batch_rates"))]
    alive = owner.is_alive(settings.job.owner_timeout_s)
    return Status(owner, alive, generation, newest, open_work, dict(letters), run, rates)


def table(status: Status) -> Table:
    """Return the status as a table for people."""
    owner, generation, newest = status.owner, status.generation, status.newest
    result = Table(title="spark-job", show_header=False)
    if owner.run_id:
        age = f"{owner.heartbeat_age_s or 0:.1f} s ago"
        state = "[green]running[/]" if status.alive else "[red]dead[/]"
        result.add_row("writer", f"{state} {owner.run_id}, pid {owner.pid} on {owner.host}, heartbeat {age}")
    else:
        result.add_row("writer", "[yellow]none[/]: `spark-job run` starts one")
    if owner.held_back_since:
        result.add_row(
            "held back",
            f"[yellow]since {owner.held_back_since:%F %T} UTC[/]: {escape(owner.held_back_because or '')}",
        )
    if run := status.run:
        result.add_row(
            "last start", f"{run.started_at:%F %T} UTC, attempt {run.attempt}: {escape(run.explanation)}"
        )
        if run.read_again:
            result.add_row("read again", f"{run.read_again:,} offsets at the most")
        if run.ended_at:
            result.add_row("ended", f"{run.ended_at:%F %T} UTC: {escape(run.ended_because or '')}")
    if generation:
        result.add_row(
            "generation",
            f"{generation.number} ({generation.reason}), revision {generation.revision}, {generation.buckets} buckets in "
            f"{generation.shuffle_partitions} shuffle partitions",
        )
    if newest and generation:
        result.add_row(
            "ledger",
            f"batch {newest.batch_id}, Spark batch {newest.spark_batch}, committed {newest.created_at:%F %T} UTC",
        )
        for where, end in newest.end.items():
            topic = generation.topics.get(where.topic_id, where.topic_id)
            result.add_row(f"{topic}/{where.partition}", f"read to {end}, safe from {newest.safe.at(where)}")
    for rate in status.rates:
        result.add_row(f"last {rate.seconds} s", str(rate))
    for name, value in status.open_work.items():
        result.add_row(name.replace("_", " "), f"{value:,}")
    for reason, count in status.open_letters.items():
        result.add_row(f"dead letters, {reason}", f"[yellow]{count:,}[/]")
    return result
