"""`spark-job status`: what the outbox says of the job, from SQL alone."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from rich.markup import escape
from rich.table import Table

from db.connection import connect
from db.migrate import require_current
from db.statements import queries
from service.settings import Settings
from spark_job.recovery import position, runs
from spark_job.recovery.ownership import Owner, read_owner
from spark_job.recovery.position import Position
from spark_job.recovery.runs import Run

_LEDGER = queries("spark_job", "ledger")
_LETTERS = queries("spark_job", "letters")


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
    """One look at writer, position and open dead letters."""

    owner: Owner
    alive: bool
    position: Position | None
    """Where the outbox is; None before the first start."""
    open_letters: dict[str, int]
    run: Run | None
    rates: list[Rate]

    def to_json(self) -> dict[str, Any]:
        """Return the same as JSON-ready values; offsets as `{topic id: {partition: offset}}`."""
        at = self.position
        generation = at.generation if at else None
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
            "batch": at.batch_id if at else None,
            "committed_at": at.newest.created_at.isoformat() if at and at.newest else None,
            "end_offsets": at.end.to_json() if at else None,
            "safe_offsets": at.safe_offsets.to_json() if at else None,
            "open": open_work(at),
            "open_dead_letters": self.open_letters,
            "rates": [rate.to_json() for rate in self.rates],
        }


def open_work(at: Position | None) -> dict[str, int]:
    """Return how much is open: sessions, and the events and bytes that they hold."""
    opened = at.open.values() if at else ()
    return {
        "open_sessions": sum(each.sessions for each in opened),
        "open_events": sum(each.events for each in opened),
        "open_bytes": sum(each.n_bytes for each in opened),
    }


def read(settings: Settings) -> Status:
    """Ask the outbox. Raises UnavailableError or SchemaError."""
    with connect(settings.postgres, "spark-job status") as connection:
        require_current(connection)
        owner = read_owner(connection)
        at = position.read(connection)
        letters = connection.execute(_LETTERS["open_counts"]).fetchall()
        run = runs.newest(connection)
        rates = [Rate(*row) for row in connection.execute(_LEDGER["rates"])]
    alive = owner.is_alive(settings.job.owner_timeout_s)
    return Status(owner, alive, at, dict(letters), run, rates)


def table(status: Status) -> Table:
    """Return the status as a table for people."""
    owner, at = status.owner, status.position
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
        if run.rebuild_offsets:
            result.add_row("read again", f"{run.rebuild_offsets:,} offsets at the most, for what is open")
        if run.ended_at:
            result.add_row("ended", f"{run.ended_at:%F %T} UTC: {escape(run.ended_because or '')}")
    if at:
        generation = at.generation
        result.add_row(
            "generation", f"{generation.number} ({generation.reason}), revision {generation.revision}"
        )
        if at.newest:
            result.add_row("ledger", f"batch {at.batch_id}, committed {at.newest.created_at:%F %T} UTC")
        for where, end in at.end.items():
            topic = generation.topics.get(where.topic_id, where.topic_id)
            opened = at.open.get(where)
            found = f", {opened.sessions:,} open since {at.safe(where)}" if opened else ""
            result.add_row(f"{topic}/{where.partition}", f"read to {end}{found}")
    for rate in status.rates:
        result.add_row(f"last {rate.seconds} s", str(rate))
    for name, value in open_work(at).items():
        result.add_row(name.replace("_", " "), f"{value:,}")
    for reason, count in status.open_letters.items():
        result.add_row(f"dead letters, {reason}", f"[yellow]{count:,}[/]")
    return result
