"""`spark-job dead-letters`: list, show, retry, discard."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import psycopg
import typer

from db.connection import Connection, connect
from db.migrate import require_current
from service.commands.confirm import confirm
from service.commands.options import Config, DryRun, Json, Limit, Yes
from service.commands.output import console, print_json
from service.commands.progress import progress_bar
from service.commands.session_keys import read_keys
from service.commands.times import SINCE, parse_moment
from service.errors import OutboxError, UnavailableError
from service.printable import printable
from service.settings import Settings, load_settings
from spark_job.dead_letters import shown, store
from spark_job.dead_letters.store import Filter
from spark_job.ledger import generations

if TYPE_CHECKING:
    from spark_job.dead_letters.outcome import RetryOutcome
    from spark_job.dead_letters.retry import Retry

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="List, show, retry or discard input that made no output.",
)

Ids = Annotated[list[int] | None, typer.Argument(help="Letters by their ids.", show_default=False)]
Reasons = Annotated[
    list[str] | None,
    typer.Option("--reason", help=f"Letters of this reason; may be repeated. {', '.join(store.REASONS)}."),
]
Key = Annotated[str | None, typer.Option("--key", help="Letters of this session key.")]
Since = Annotated[
    str | None,
    typer.Option("--since", help=f"Letters written since: {SINCE}."),
]
All = Annotated[bool, typer.Option("--all", help="Every open letter.")]


class LetterError(OutboxError):
    """The command names letters that it cannot be used on."""

    exit_code = 2


@app.command("list")
def list_letters(
    config: Config = None,
    reason: Reasons = None,
    state: Annotated[str, typer.Option(help="open, resolved, discarded or all.")] = store.OPEN,
    key: Key = None,
    since: Since = None,
    keys_file: Annotated[
        Path | None,
        typer.Option(
            "--keys-file",
            help="Letters of the session keys in this file, one a line (in FILE.jsonl as JSON strings), and letters without a key whose "
            "events hold one of them.",
        ),
    ] = None,
    limit: Limit = 100,
    as_json: Json = False,
) -> None:
    """List letters, oldest first, and count them by reason. Their events are not shown: `show` does that."""
    if state not in (*store.STATES, "all"):
        raise LetterError(f"--state {state!r} is none of {', '.join(store.STATES)}, all")
    which = _filter(None, reason, None if state == "all" else state, key, since)
    mentioned = read_keys((), keys_file)
    with _outbox(load_settings(config)) as connection:
        letters = store.find(connection, which, limit, mentioned)
        counts = store.count(connection, which, mentioned)
    if as_json:
        print_json({"letters": letters, "counts": counts})
        return
    out = console()
    if not counts:
        out.print("no letters")
        return
    shown.letters_table(letters).print(out)
    out.print()
    shown.counts_table(counts).print(out)
    total = sum(row["letters"] for row in counts)
    if total > len(letters):
        out.print(f"{total - len(letters):,} more: raise --limit")


@app.command()
def show(
    letter_id: Annotated[int, typer.Argument(metavar="ID", help="The letter.")],
    config: Config = None,
    raw: Annotated[
        bool,
        typer.Option(
            "--raw",
            help="Only the values of the kept events: their bytes as Kafka has them, each followed by a line feed. On a terminal, "
            "control characters are escaped.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Show a letter: reason, traceback, and each kept event with its value (as hex where it is not UTF-8)."""
    from spark_job.ledger.assembly_rules import (
        applied_rules,  # Arrow's imports cost time that `list` need not pay
    )

    settings = load_settings(config)
    with _outbox(settings) as connection:
        found = store.read(connection, [letter_id])
        assembly = generations.assembly_of_generation(connection, found[0].generation) if found else {}
    if not found:
        raise LetterError(
            f"there is no letter {letter_id}: `spark-job dead-letters list --state all` lists them"
        )
    letter = found[0]
    if raw:
        values = b"".join((value or b"") + b"\n" for value in letter.event_values)
        if sys.stdout.isatty():
            values = printable(values.decode("utf-8", "backslashreplace"), keep="\n\t").encode()
        sys.stdout.buffer.write(values)
        return
    rules = applied_rules(assembly).rules
    types = shown.event_types(letter, rules.type_path if rules.format == "json" else None)
    readable = _decoder(settings, rules.format)
    if as_json:
        print_json(shown.letter_json(letter, types, readable))
    else:
        shown.print_letter(console(), letter, types, readable)


def _decoder(settings: Settings, of: str) -> Callable[[bytes], str | None] | None:
    """Return a decoder of values that are neither JSON nor bytes; None if there is nothing to decode, or no registry is set."""
    options = settings.schema_registry.client()
    if of in ("json", "bytes") or not options:
        return None
    from service.formats.registry.schemas import schemas_of
    from service.formats.values import readable
    from service.formats.writer import RegistryAwayError, RegistryRefusedError
    from service.kafka.transport import name_unprotected_registry

    name_unprotected_registry(settings.schema_registry)

    def shown_as(value: bytes) -> str | None:
        try:
            return readable(value, schemas_of(options))
        except (RegistryAwayError, RegistryRefusedError):
            return None  # the bytes are shown: a letter can be shown without the registry

    return shown_as


@app.command()
def retry(
    ids: Ids = None,
    config: Config = None,
    reason: Reasons = None,
    key: Key = None,
    since: Since = None,
    every: All = False,
    incomplete: Annotated[
        bool,
        typer.Option(
            "--incomplete",
            help="Also sessions without an end (timed_out, restarted): transformed as they are, ending at the last event that came.",
        ),
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    letters_per_batch: Annotated[
        int, typer.Option(min=1, max=10_000, help="Most letters in one transaction, except `malformed`.")
    ] = 500,
    as_json: Json = False,
) -> None:
    """Pass the kept events of open letters through the current transform again, and send their outputs exactly once.

    The job may run meanwhile. Letters that are no whole session, and those that the job is about to judge again, are refused and left as
    they are. Exits with 1 when the transform failed again for one, or a letter named by its id was refused; the other letters are
    retried all the same.
    """
    from spark_job.dead_letters.retry import (
        Retry,  # Arrow's imports cost time that the other commands need not pay
    )

    which = _chosen(ids, reason, key, since, every)
    settings = load_settings(config)
    with _outbox(settings) as connection:
        _check_exist(connection, ids)
        if not dry_run and not ids:
            _confirm(connection, which, "Retry", yes=yes)
        work = Retry(connection, settings, incomplete=incomplete, asked=which.asked())
        done = _retried(work, work.steps(which, letters_per_batch), dry_run=dry_run, quiet=as_json)
    if as_json:
        print_json(shown.outcome_json(done, dry_run=dry_run))
    else:
        for line in shown.outcome_lines(done, dry_run=dry_run):
            console().print(line)
    raise typer.Exit(1 if done.failed or (ids and done.refused) else 0)


@app.command()
def discard(
    ids: Ids = None,
    config: Config = None,
    reason: Reasons = None,
    key: Key = None,
    since: Since = None,
    every: All = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Discard open letters: they cannot be retried any more. Their events are kept.

    Exits with 1 when a letter named by its id was not open.
    """
    which = _chosen(ids, reason, key, since, every)
    with _outbox(load_settings(config)) as connection:
        _check_exist(connection, ids)
        _confirm(connection, which, "Discard", yes=yes)
        discarded = store.discard(connection, which)
    left = sorted(set(ids or ()) - set(discarded))
    if as_json:
        print_json({"discarded": discarded, "not_open": left})
    else:
        console().print(f"letters discarded: {len(discarded)}")
        if left:
            console().print(f"not open, left as they are: {', '.join(map(str, left))}")
    raise typer.Exit(1 if left else 0)


def _retried(work: "Retry", steps: list[list[int]], *, dry_run: bool, quiet: bool) -> "RetryOutcome":
    from spark_job.dead_letters.outcome import RetryOutcome

    total = RetryOutcome()
    with progress_bar(quiet=quiet) as progress:
        task = progress.add_task("letters", total=sum(map(len, steps)))
        for ids in steps:
            total.add(work.run_once(ids, dry_run=dry_run))
            progress.advance(task, len(ids))
    return total


def _chosen(
    ids: list[int] | None, reasons: list[str] | None, key: str | None, since: str | None, every: bool
) -> Filter:
    """Return the filter of the letters that the command names: letters by their ids, in any state, or open letters by filters, or all open
    letters. Raises LetterError unless it names them in exactly one of these ways.
    """
    filters = bool(reasons or key is not None or since)
    if [bool(ids), filters, every].count(True) != 1:
        raise LetterError("name letters by their ids, or by --reason, --key and --since, or with --all")
    return _filter(ids, reasons, None if ids else store.OPEN, key, since)


def _filter(
    ids: list[int] | None, reasons: list[str] | None, state: str | None, key: str | None, since: str | None
) -> Filter:
    for name in reasons or ():
        if name not in store.REASONS:
            raise LetterError(f"--reason {name!r} is none of {', '.join(store.REASONS)}")
    return Filter(
        tuple(ids) if ids else None,
        tuple(reasons) if reasons else None,
        state,
        key,
        None if since is None else parse_moment(since, "--since").here(),
    )


def _check_exist(connection: Connection, ids: list[int] | None) -> None:
    """Raise LetterError if an id has no letter: a mistyped id must not leave half of a command done."""
    if not ids:
        return
    found = {row["dead_letter_id"] for row in store.find(connection, Filter(ids=tuple(ids)), len(ids))}
    if missing := sorted(set(ids) - found):
        removed = store.removed_up_to(connection)
        why = "" if removed is None else f" Retention has removed letters up to {removed}."
        raise LetterError(f"there is no letter {', '.join(map(str, missing))}.{why} Nothing was done.")


def _confirm(connection: Connection, which: Filter, verb: str, *, yes: bool) -> None:
    if yes:
        return
    number = sum(row["letters"] for row in store.count(connection, which))
    confirm(yes, f"{verb} {number} letters?", f"this would {verb.lower()} {number} letters")


@contextmanager
def _outbox(settings: Settings) -> Iterator[Connection]:
    """Connect, and explain Postgres' errors."""
    with connect(settings.postgres, "spark-job dead-letters", autocommit=True) as connection:
        require_current(connection)
        try:
            yield connection
        except psycopg.errors.LockNotAvailable as error:
            raise UnavailableError(
                "a batch or a command held the writer lock for longer than [postgres] lock_timeout_ms = "
                f"{settings.postgres.lock_timeout_ms}. What was done before is done: run the command again."
            ) from error
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            raise UnavailableError(
                f"Postgres failed meanwhile: {str(error).partition(chr(10))[0]}. The letters in progress are either all done or unchanged: "
                "run the command again; it refuses those that are done."
            ) from error
