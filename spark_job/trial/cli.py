"""`spark-job try`: show what the current transform would send, for the newest sessions of the input or those of a file."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Annotated

import psycopg
import typer

from service.commands.options import Config, Json
from service.commands.output import console, error_console, print_json
from service.errors import OutboxError, RefusedError, SettingsError, UnavailableError, reason_of
from service.formats.registry.schemas import schemas_of
from service.formats.writer import RegistryAwayError, RegistryRefusedError
from service.kafka.reading import NamedPartition
from service.kafka.transport import name_unprotected_registry
from service.settings import SessionSettings, Settings, load_settings
from spark_job.input.offsets import Offsets
from spark_job.input.reading import NoAnswerError, RecordsGoneError
from spark_job.input.topics import InputTopics, kafka_input
from spark_job.outputs import transform
from spark_job.outputs.schemas import OutputSchemaRefusedError, output_encoder
from spark_job.outputs.settings import OutputSchemaRules
from spark_job.testing.records import table_of
from spark_job.testing.running import SessionRun, TransformRunner, WholeSession
from spark_job.trial.compared import Compared
from spark_job.trial.newest import NewestRecords, ReadLimits
from spark_job.trial.outbox import look_up
from spark_job.trial.shown import Trial

_MOST_SESSIONS = 10_000


def try_transform(
    last: Annotated[
        int,
        typer.Option(
            "--last", min=1, max=_MOST_SESSIONS, help="Run it on this many of the newest whole sessions."
        ),
    ] = 20,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            help="Instead of the input: a file of one partition's event values, one JSON document on each line.",
            dir_okay=False,
            show_default=False,
        ),
    ] = None,
    max_bytes: Annotated[
        int, typer.Option("--max-bytes", min=1, help="Read at most this many bytes of event values.")
    ] = 64 << 20,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, help="Read for at most this many seconds.")
    ] = 60.0,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Run the current transform on the newest whole sessions of the input, and show its outputs beside those in the outbox.

    Nothing is written: not to Kafka (no group is joined), to Postgres, to a schema registry or to a disk. Without Postgres, nothing is
    compared. Exits with 1 if the transform fails for one of the sessions.
    """
    settings = load_settings(config)
    sys.dont_write_bytecode = True  # leave no __pycache__ beside the transform
    with redirect_stdout(sys.stderr), explained_clients():  # a transform's prints are not part of the answer
        function = transform.load(settings.transform.function)
        found = (
            _of_input(settings, function, last, ReadLimits(max_bytes, timeout))
            if file is None
            else _of_file(settings, function, file)
        )
    if as_json:
        print_json(found.to_json())
    else:
        found.print(console())
    raise typer.Exit(1 if found.failed else 0)


def runner_of(settings: Settings, function: transform.Transform) -> TransformRunner:
    """Return the runner of a transform. It reads schemas from the registry, and registers none."""
    registry = settings.schema_registry
    name_unprotected_registry(registry)
    rules = OutputSchemaRules(False, registry.subject_name_strategy)  # the registry is only read
    schemas = schemas_of(registry.client()) if settings.source.has_schemas else {}
    return TransformRunner(function, settings, schemas, output_encoder(registry.client(), rules))


def _of_file(settings: Settings, function: transform.Transform, file: Path) -> Trial:
    runner = runner_of(settings, function)
    try:
        records = table_of(file, runner.columns)
    except OSError as error:
        raise SettingsError(f"--file {str(file)!r} cannot be read: {error}") from error
    found = runner.run(records, settings.source.topics[0], 0)
    return Trial(
        [Compared(each, None) for each in found.sessions],
        len(records),
        f"{len(records):,} records of {file}",
        not_compared="a file's sessions have no place in the input",
        letters=found.letters,
        open=found.open,
    )


def _of_input(settings: Settings, function: transform.Transform, last: int, limits: ReadLimits) -> Trial:
    runner = runner_of(settings, function)
    with kafka_input(settings) as kafka:
        topics = kafka.describe()
        starts, ends = kafka.bounds(topics, "earliest"), kafka.bounds(topics, "readable")
    newest = NewestRecords(settings.kafka, by_name(starts, topics), by_name(ends, topics), limits)
    found = newest_sessions(runner, newest, last)
    sessions = [runner.transformed(each) for each in found]
    not_compared, compared = None, [Compared(each, None) for each in sessions]
    try:
        compared = compared_with_outbox(settings, found, sessions, topics)
    except (OutboxError, psycopg.Error) as error:
        not_compared = reason_of(error)
    return Trial(
        compared,
        newest.n_records,
        f"{newest.n_records:,} records of {', '.join(topics.ids)}, {newest.n_bytes:,} bytes of values",
        None if len(sessions) == last else newest.limited_by,
        not_compared,
    )


def compared_with_outbox(
    settings: Settings, found: Sequence[WholeSession], sessions: Sequence[SessionRun], topics: InputTopics
) -> list[Compared]:
    """Return each session's new outputs beside those in the outbox. Raises OutboxError, psycopg.Error."""
    closings = [each.closed.closing_offset for each in found]
    stored = look_up(settings, [each.session for each in sessions], closings, topics.ids)
    return [Compared(each, its) for each, its in zip(sessions, stored, strict=True)]


def newest_sessions(
    runner: TransformRunner,
    newest: NewestRecords,
    last: int,
    since: Mapping[NamedPartition, int] | None = None,
) -> list[WholeSession]:
    """Return the sessions that ended last, in the order of their ends; `since`: only those that closed at these offsets or later."""
    froms = since or {}
    found: list[WholeSession] = []
    with error_console().status("reading the newest records of the input") as shown:
        while len(found) < last and newest.extend():
            found = [
                session
                for place, messages in newest.records.items()
                if messages
                for session in begun_within(
                    runner.assembled(runner.columns.table(messages), *place).sessions,
                    runner.settings.session,
                    is_whole=newest.is_whole(place),
                )
                if session.closed.closing_offset >= froms.get(place, 0)
            ]
            shown.update(
                f"reading the input backwards: {len(found):,} of {last:,} sessions in {newest.n_records:,} records, "
                f"{newest.n_bytes / 1_000_000:,.1f} MB"
            )
    found.sort(key=lambda each: (each.closed.ended_ms, each.topic, each.partition, each.closed.end_offset))
    return found[-last:]


def begun_within(
    sessions: Sequence[WholeSession], rules: SessionSettings, *, is_whole: bool
) -> Sequence[WholeSession]:
    """Return the sessions of a partition, given in closing order, that cannot have begun before the records that were read.

    Without `[session] start` any event opens a session, so the rest of a session looks like a whole one. A session is then certain to be
    whole only if it begins more than a timeout after the earliest of these sessions, and times are roughly in order. A later part is whole
    if the first part of its session is.
    """
    if is_whole or rules.start or not sessions:
        return sessions
    certain_ms = min(each.closed.started_ms for each in sessions) + round(rules.timeout_s * 1000)
    found, is_certain = list[WholeSession](), dict[str, bool]()
    for each in sessions:
        if each.closed.part == 1:
            is_certain[each.closed.key] = each.closed.started_ms > certain_ms
        if is_certain[each.closed.key]:
            found.append(each)
    return found


def by_name(offsets: Offsets, topics: InputTopics) -> dict[NamedPartition, int]:
    """Return the offsets by topic and partition."""
    return {(topics.names[where.topic_id], where.partition): offset for where, offset in offsets.items()}


@contextmanager
def explained_clients() -> Iterator[None]:
    """Turn what the clients of Kafka and of a schema registry raise into an OutboxError."""
    # Imported here: it imports Spark, too.
    from spark_job.failures.explain import explained

    try:
        with explained():
            yield
    except NoAnswerError as error:
        raise UnavailableError(f"Kafka does not give the newest records: {error}") from error
    except RecordsGoneError as error:
        raise UnavailableError(f"{error}. Kafka's retention deleted them meanwhile; try again") from error
    except RegistryAwayError as error:
        raise UnavailableError(str(error)) from error
    except (RegistryRefusedError, OutputSchemaRefusedError, ModuleNotFoundError) as error:
        raise RefusedError(str(error)) from error
