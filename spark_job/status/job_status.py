"""`spark-job status`: the job's state as stored in the outbox. Only Postgres is asked."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from rich.console import Console
from rich.text import Text

from db.connection import connect
from db.migrate import require_current
from db.statements import queries
from service.commands.tables import print_fields
from service.settings import Settings
from spark_job.ledger import position, runs
from spark_job.ledger.ownership import Owner, read_owner
from spark_job.ledger.position import InputPosition
from spark_job.ledger.runs import Run

_LEDGER = queries("spark_job", "ledger")
_LETTERS = queries("spark_job", "letters")


class BatchRate(NamedTuple):
    """What was committed to the outbox within the last `seconds`, retries of dead letters included."""

    seconds: int
    batches: int
    input_events: int
    sessions: int
    output_events: int
    dead_letters: int
    duplicate_events: int

    def __str__(self) -> str:
        """Return the counts and the rates per second as one line of text."""
        rates = self.to_json()
        return (
            f"{self.batches:,} batches, {self.input_events:,} events ({rates['input_events_per_second']:,.1f}/s), {self.sessions:,} "
            f"sessions ({rates['sessions_per_second']:,.1f}/s), {self.output_events:,} outputs, {self.dead_letters:,} dead letters"
        )

    def to_json(self) -> dict[str, float]:
        """Return the counts and the mean rates per second."""
        return self._asdict() | {
            "input_events_per_second": round(self.input_events / self.seconds, 1),
            "sessions_per_second": round(self.sessions / self.seconds, 1),
        }


class NewestBatch(NamedTuple):
    """The newest batch of the ledger: of the stream, a retry of dead letters or a requeue of parked rows."""

    batch_id: int
    kind: str
    created_at: datetime


@dataclass(frozen=True)
class JobStatus:
    """The owner, the position and the open dead letters at one moment."""

    owner: Owner
    alive: bool
    position: InputPosition | None
    """The outbox's position; None before the first start."""
    open_letters: dict[str, int]
    run: Run | None
    rates: list[BatchRate]
    newest: NewestBatch | None = None
    """None while the ledger is empty."""

    def to_json(self) -> dict[str, Any]:
        """Return the status as JSON-ready values; offsets as `{topic id: {partition: offset}}`."""
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
            "generation_explanation": generation.explanation if generation else None,
            "generation_offsets": generation.start.to_json() if generation else None,
            "ledger_batch": self.newest.batch_id if self.newest else None,
            "ledger_kind": self.newest.kind if self.newest else None,
            "batch": at.batch_id if at else None,
            "committed_at": at.newest.created_at.isoformat() if at and at.newest else None,
            "end_offsets": at.end.to_json() if at else None,
            "safe_offsets": at.safe_offsets.to_json() if at else None,
            "open": open_work(at),
            "open_dead_letters": self.open_letters,
            "rates": [rate.to_json() for rate in self.rates],
        }


def open_work(at: InputPosition | None) -> dict[str, int]:
    """Return the number of open sessions, and of their events and bytes."""
    opened = at.open.values() if at else ()
    return {
        "open_sessions": sum(each.sessions for each in opened),
        "open_events": sum(each.events for each in opened),
        "open_bytes": sum(each.n_bytes for each in opened),
    }


def read(settings: Settings) -> JobStatus:
    """Read the outbox. Raises UnavailableError or SchemaError."""
    with connect(settings.postgres, "spark-job status") as connection:
        require_current(connection)
        owner = read_owner(connection)
        at = position.read(connection)
        letters = connection.execute(_LETTERS["open_counts"]).fetchall()
        run = runs.newest(connection)
        rates = [BatchRate(*row) for row in connection.execute(_LEDGER["rates"])]
        newest = connection.execute(_LEDGER["newest"]).fetchone()
    alive = owner.is_alive(settings.job.owner_timeout_s)
    return JobStatus(owner, alive, at, dict(letters), run, rates, NewestBatch(*newest) if newest else None)


def print_status(out: Console, status: JobStatus) -> None:
    """Print the status for people."""
    print_fields(out, _fields(status))


def _fields(status: JobStatus) -> Iterator[tuple[str, str | Text]]:
    owner, at = status.owner, status.position
    if owner.run_id:
        age = f"{owner.heartbeat_age_s or 0:.1f} s ago"
        state = Text("running", "green") if status.alive else Text("dead", "red")
        yield "job", state.append(f", heartbeat {age}, pid {owner.pid} on {owner.host}", "default")
        yield "run", str(owner.run_id)
    else:
        yield "job", Text("none", "yellow").append(": `spark-job run` starts one", "default")
    if owner.held_back_since:
        yield "held back", f"since {owner.held_back_since:%F %T} UTC: {owner.held_back_because or ''}"
    if run := status.run:
        yield "last start", f"{run.started_at:%F %T} UTC, attempt {run.attempt}: {run.explanation}"
        if run.failed_before:
            yield "attempt before", run.failed_before
        if run.rebuild_offsets:
            yield "rebuild", f"at most {run.rebuild_offsets:,} offsets, for the open sessions"
        if run.ended_at:
            yield "ended", f"{run.ended_at:%F %T} UTC: {run.ended_because or ''}"
    if newest := status.newest:
        yield "ledger", f"batch {newest.batch_id} ({newest.kind}), committed {newest.created_at:%F %T} UTC"
    if at:
        generation = at.generation
        yield "generation", f"{generation.number} ({generation.reason}), revision {generation.revision}"
        if generation.explanation and not (run and generation.explanation in run.explanation):
            yield "began", generation.explanation
        if at.newest:
            yield "input", f"read by batch {at.batch_id}, committed {at.newest.created_at:%F %T} UTC"
        for where, end in at.end.items():
            topic = generation.topics.get(where.topic_id, where.topic_id)
            opened = at.open.get(where)
            found = f", {opened.sessions:,} open since {at.safe(where)}" if opened else ""
            yield f"{topic}/{where.partition}", f"read to {end}{found}"
    for rate in status.rates:
        yield f"last {rate.seconds} s", str(rate)
    for name, value in open_work(at).items():
        yield name.replace("_", " "), f"{value:,}"
    for reason, count in status.open_letters.items():
        yield "dead letters", Text(f"{count:,} {reason}", "yellow")
