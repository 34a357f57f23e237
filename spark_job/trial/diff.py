"""`spark-job diff`: show which outputs the current transform would change, for sessions closed since a batch."""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import psycopg
import typer

from db.connection import connect, snapshot
from db.migrate import require_current
from db.statements import queries
from service.commands.options import Config, Json
from service.commands.output import console, print_json
from service.commands.times import SINCE, parse_moment
from service.errors import RefusedError, UnavailableError
from service.printable import printable
from service.settings import Settings, load_settings
from spark_job.input.offsets import Offsets
from spark_job.input.topics import kafka_input
from spark_job.ledger import position
from spark_job.ledger.position import InputPosition
from spark_job.outputs import transform
from spark_job.trial.cli import (
    by_name,
    compared_with_outbox,
    explained_clients,
    newest_sessions,
    runner_of,
)
from spark_job.trial.compared import Compared, OutputState
from spark_job.trial.newest import NewestRecords, ReadLimits
from spark_job.trial.outbox import NotStored
from spark_job.trial.shown import STATES, session_json, session_lines

_TRIAL = queries("spark_job", "trial")
_MOST_SESSIONS = 100_000
_WORDS: dict[OutputState, str] = {"altered": "changed", "new": "added", "missing": "vanished", "same": "same"}


def diff(
    since: Annotated[
        str,
        typer.Option(
            "--since",
            metavar="TIME|BATCH",
            help=f"The first batch, or the time of its commit: {SINCE}.",
            show_default=False,
        ),
    ],
    limit: Annotated[
        int,
        typer.Option(
            "--last",
            min=1,
            max=_MOST_SESSIONS,
            help="Compare at most this many sessions, newest first.",
        ),
    ] = 1_000,
    max_bytes: Annotated[
        int, typer.Option("--max-bytes", min=1, help="Read at most this many bytes of event values.")
    ] = 256 << 20,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, help="Read for at most this many seconds.")
    ] = 300.0,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Run the current transform on the sessions that closed since a batch, and show which outputs a reissue would change.

    Sessions are assembled from the input again and compared with the newest revision in the outbox. Like `spark-job try`, it
    writes nothing. Exits with 0 if nothing differs, with 1 if anything does.
    """
    settings = load_settings(config)
    sys.dont_write_bytecode = True  # leave no __pycache__ beside the transform
    with redirect_stdout(sys.stderr), explained_clients():  # a transform's prints are not part of the answer
        function = transform.load(settings.transform.function)
        found = _compare(settings, function, since, limit, ReadLimits(max_bytes, timeout))
    if as_json:
        print_json(found.to_json())
    else:
        for line in found.lines():
            console().print(printable(line))
    raise typer.Exit(1 if found.differing else 0)


class ComparedRange(NamedTuple):
    """Sessions closed since batch `first` are compared. `before`: the input position before `first`; `end`: the current read position."""

    first: int
    before: InputPosition
    end: Offsets


@dataclass(frozen=True)
class RunDifference:
    """Sessions, with the transform's outputs and the outbox's."""

    first_batch: int
    sessions: Sequence[Compared]
    limited_by: str | None

    @property
    def differing(self) -> list[Compared]:
        """The sessions with an output that would change, be added or vanish, and those that would become dead letters."""
        return [each for each in self.sessions if each.state == "altered" or set(outputs_of(each)) - {"same"}]

    @property
    def outputs(self) -> dict[str, int]:
        """How many outputs would change, be added, vanish, stay the same."""
        counts = Counter(state for each in self.sessions for state in outputs_of(each))
        return {word: counts[state] for state, word in _WORDS.items()}

    @property
    def failed(self) -> int:
        """Sessions that would become dead letters."""
        return sum(each.run.failure is not None for each in self.sessions)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON-ready values."""
        return {
            "first_batch": self.first_batch,
            "sessions": len(self.sessions),
            "states": dict(Counter(each.state for each in self.sessions)),
            "outputs": self.outputs,
            "failed": self.failed,
            "limited_by": self.limited_by,
            "differing": [session_json(each) for each in self.differing],
        }

    def lines(self) -> Iterator[str]:
        """Yield the lines to print."""
        for each in self.differing:
            yield from session_lines(each)
        states = Counter(each.state for each in self.sessions if each.state is not None)
        parts = [f"{STATES[state]} {count}" for state, count in sorted(states.items())]
        failed = [f"failed {self.failed}"] if self.failed else []
        yield f"sessions since batch {self.first_batch}: {', '.join([str(len(self.sessions)), *failed, *parts])}"
        yield "outputs: " + ", ".join(f"{count:,} {word}" for word, count in self.outputs.items())
        if self.limited_by is not None:
            yield f"No older session was compared: {self.limited_by} was reached"


def outputs_of(of: Compared) -> list[OutputState]:
    """Return the state of each output.

    If the outbox lacks the session, all are new. None count if it was erased, the job has not read it, or its start was not read here.
    """
    if isinstance(of.stored, NotStored):
        return ["new"] * len(of.run.outputs) if of.stored.state in ("dead_letter", "absent") else []
    return [] if of.state == "begins_earlier" else of.outputs


def _compare(
    settings: Settings, function: transform.Transform, since: str, limit: int, limits: ReadLimits
) -> RunDifference:
    runner = runner_of(settings, function)
    try:
        asked = _range(settings, since)
    except psycopg.OperationalError as error:
        raise UnavailableError(f"Postgres went away: {str(error).strip()}") from error
    with kafka_input(settings) as kafka:
        topics = kafka.describe()
        earliest, readable = kafka.bounds(topics, "earliest"), kafka.bounds(topics, "readable")
    known = Offsets({where: offset for where, offset in asked.end.items() if where in readable})
    safe = asked.before.safe_offsets
    starts = by_name(Offsets({where: max(safe.at(where), earliest.at(where)) for where in known}), topics)
    newest = NewestRecords(
        settings.kafka,
        starts,
        by_name(known.lowered(readable), topics),
        limits,
        wholes=by_name(Offsets({where: safe.at(where) for where in known}), topics),
    )
    before = by_name(Offsets({where: asked.before.end.at(where) for where in known}), topics)
    # Fetch one extra session to learn whether older ones were left out.
    found = newest_sessions(runner, newest, limit + 1, before)
    limited_by = newest.limited_by
    if len(found) > limit:
        found, limited_by = found[1:], f"--last {limit}"
    sessions = [runner.transformed(each) for each in found]
    return RunDifference(asked.first, compared_with_outbox(settings, found, sessions, topics), limited_by)


def _range(settings: Settings, since: str) -> ComparedRange:
    """Return the range since a batch or time.

    Raises RefusedError if nothing was committed since or the batch's generation is gone, SettingsError, UnavailableError, OperationalError.
    """
    wanted: dict[str, Any] = {"batch_id": None, "at": None, "age_s": None}
    if since.isascii() and since.isdigit():
        wanted["batch_id"] = int(since)
    else:
        moment = parse_moment(since, "--since")
        wanted |= {"at": moment.at, "age_s": moment.age_s}
    with connect(settings.postgres, "spark-job diff", autocommit=True) as connection:
        require_current(connection)
        with snapshot(connection):
            row = connection.execute(_TRIAL["first_since"], wanted).fetchone()
            now = position.read(connection)
            if row is None or now is None:
                raise RefusedError(f"the job has committed no batch since {since}")
            before = position.before_batch(connection, row[1], row[0])
            if before is None:
                raise RefusedError(f"the generation of batch {row[0]} is gone")
            return ComparedRange(row[0], before, now.end)
