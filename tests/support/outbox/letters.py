"""Dead letters with real events in a sink's outbox, and the transforms that retries are tried with."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import orjson

from db.connection import Connection
from service.settings import Settings
from spark_job import OutputEvent, Session
from spark_job.dead_letters.outcome import RetryOutcome
from spark_job.dead_letters.retry import Retry
from spark_job.dead_letters.store import Filter
from spark_job.sink.commit import CommittedBatch
from tests.support.sink.batches import Row, SinkRun, letter, still_open

HERE = "tests.support.outbox.letters"
WHOLE = ("start_event", "entry_event", "end_event")

meanwhile: list[Callable[[], object]] = []
"""What `interrupted` does before it returns."""


def good(session: Session) -> Iterable[OutputEvent]:
    """An output that says everything of the session."""
    events = [[event.type, event.value["n"], event.offset] for event in session.events]
    return [OutputEvent("t", {"key": session.key, "ends": session.end.offset, "events": events})]


def counted(session: Session) -> Iterable[OutputEvent]:
    """An output for events in any format."""
    return [OutputEvent("t", {"key": session.key, "events": [event.type for event in session.events]})]


def moody(session: Session) -> Iterable[OutputEvent]:
    """Fails for keys that begin with `bad`."""
    if session.key.startswith("bad"):
        raise ValueError(f"still no luck with {session.key}")
    return good(session)


def interrupted(session: Session) -> Iterable[OutputEvent]:
    """Something happens in the outbox while the transform runs."""
    for act in meanwhile:
        act()
    return counted(session)


def events(key: str, types: Sequence[str] = WHOLE) -> list[bytes]:
    """The values of a session's events."""
    return [orjson.dumps({"event_type": kind, "session_key": key, "n": n}) for n, kind in enumerate(types)]


def failed(key: str, first: int = 10, types: Sequence[str] = WHOLE, **changed: Any) -> Row:
    """A letter of a session whose transform failed, events from offset `first` on. `changed`: columns of the row."""
    closing = first + len(types) - 1
    return letter(key, first, closing, "transform_failed", events(key, types)) | changed


def unended(key: str, first: int, closing: int, reason: str = "timed_out", number: int = 2) -> Row:
    """A letter of a session without its end."""
    return letter(key, first, closing, reason, events(key, [WHOLE[0], *[WHOLE[1]] * (number - 1)]))


def settings(dsn: str, function: str = "good") -> Settings:
    """Settings of a retry with one of the transforms here."""
    return Settings(postgres={"dsn": dsn}, transform={"function": f"{HERE}:{function}"})  # type: ignore[arg-type]


def retry(
    connection: Connection, dsn: str, *ids: int, function: str = "good", dry_run: bool = False, **options: Any
) -> RetryOutcome:
    """Retry these letters, or all open ones, as the command does."""
    work = Retry(connection, settings(dsn, function), **options)
    total = RetryOutcome()
    for step in work.steps(Filter(ids=ids) if ids else Filter(state="open"), 500):
        total.add(work.run_once(step, dry_run=dry_run))
    return total


def with_letters(connection: Connection, *letters: Row, end: int = 100, **options: Any) -> SinkRun:
    """A generation whose batch 1 wrote these letters and read partition 0 to `end`."""
    sink_run = SinkRun(connection, **options)
    sink_run.plan(0, (0, 0), (end, 50))
    written: CommittedBatch | None = sink_run.write(0, *letters, still_open(0))
    assert written is not None
    assert written.dead_letters == len(letters)
    return sink_run


def states(connection: Connection) -> dict[str, tuple[str, int | None]]:
    """{session key: (state, resolving batch)} of all letters."""
    rows = connection.execute(
        "SELECT session_key, state, resolved_batch FROM outbox.dead_letter ORDER BY dead_letter_id"
    ).fetchall()
    return {key: (state, batch) for key, state, batch in rows}


def outputs(connection: Connection) -> list[tuple[Any, ...]]:
    """(batch, key, revision, starts, ends, outputs) of all rows."""
    return connection.execute(
        "SELECT batch_id, session_key, revision, session_starts, session_ends, session_outputs FROM outbox.session_output"
        " ORDER BY batch_id, session_key"
    ).fetchall()
