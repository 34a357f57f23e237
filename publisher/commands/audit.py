"""`publisher audit`: runs the audit and prints its report."""

import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import gettempdir
from typing import Annotated

import psycopg
import typer
from confluent_kafka import KafkaException
from rich.text import Text

from publisher.audit.audit import AuditRequest
from publisher.audit.audit import audit as run_audit
from publisher.audit.findings import EXAMPLES, AuditReport
from publisher.audit.readback.rows_to_send_again import shell_word
from publisher.audit.readback.state import make_folder
from publisher.audit.scope import Limits
from publisher.commands.common import database
from publisher.kafka.clients import check_options
from publisher.trace.consumers import consumer_tables, is_database
from service.commands.options import Config, Json
from service.commands.output import console, document, print_json
from service.commands.progress import progress_bar
from service.commands.tables import Table
from service.commands.times import SINCE, parse_moment
from service.errors import UnavailableError
from service.observability import logs
from service.printable import printable
from service.private_file import check_writable, write_private
from service.settings import load_settings

_KEYS_FILE = Path("lost-keys.txt")


def audit(
    config: Config = None,
    as_json: Json = False,
    kafka: Annotated[
        bool,
        typer.Option("--kafka", help="Also read the output topics back and compare them with the outbox."),
    ] = False,
    consumed: Annotated[
        str | None,
        typer.Option(
            metavar="DSN|GROUP",
            help="With all of --kafka: also compare what a consumer has consumed. The database of `outbox_consumer` (postgresql://…, "
            "key=value words, sqlite:///PATH, or file:///PATH of a file with the DSN), or the consumer group of another client.",
            show_default=False,
        ),
    ] = None,
    archive: Annotated[
        bool,
        typer.Option("--archive", help="Also read the whole archive and compare it with what was recorded."),
    ] = False,
    from_batch: Annotated[
        int | None, typer.Option(min=1, help="First batch; default: the oldest that is kept.")
    ] = None,
    to_batch: Annotated[int | None, typer.Option(min=1, help="Last batch; default: the newest.")] = None,
    since: Annotated[str | None, typer.Option(help=f"Batches committed since: {SINCE}.")] = None,
    until: Annotated[str | None, typer.Option(help=f"Batches committed before: {SINCE}.")] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            help="With --kafka: keep where the audit is in this directory; the same command continues from there."
        ),
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Also write the JSON report to this file.")] = None,
    keys_file: Annotated[
        Path,
        typer.Option(help="Where the session keys go that the replay command names, when there are many."),
    ] = _KEYS_FILE,
) -> None:
    """Prove that ledger, rows and deliveries agree, with --archive also that the archive is unaltered, with --kafka that every output is in
    its topic exactly once.

    With --consumed also that a consumer has consumed each of them, once and in order, and what waits for it.

    Reads only. All services may run meanwhile. Exit codes: 0 clean, 1 something is wrong, 6 Postgres or Kafka did not answer,
    2 wrong settings, 3 wrong schema.
    """
    kafka = kafka or consumed is not None
    if state is not None and not kafka:
        raise typer.BadParameter("--state is for --kafka", param_hint="--state")
    settings = load_settings(config)
    logs.configure(settings.log)
    if state is not None:
        # First, because the other files may be in this directory.
        make_folder(state)
    if report is not None:
        check_writable(report, "--report")
    if kafka and keys_file != _KEYS_FILE:
        check_writable(keys_file, "--keys-file")
    if kafka:
        check_options(settings.kafka, settings.publisher.transaction_timeout_ms)
    if consumed is not None and is_database(consumed):
        # Check before the topics are read that the database can be used.
        with consumer_tables(consumed, "publisher audit"):
            pass
    limits = Limits(
        from_batch,
        to_batch,
        None if since is None else parse_moment(since, "--since").here(),
        None if until is None else parse_moment(until, "--until").here(),
    )
    request = AuditRequest(limits, kafka, state, keys_file.absolute(), consumed, archive)
    with (
        database(settings, "audit") as connection,
        progress_bar(quiet=as_json) as progress,
    ):

        def phase(name: str, steps: int) -> Callable[[int], None]:
            task = progress.add_task(name, total=steps)
            return lambda done: progress.advance(task, done)

        try:
            found = run_audit(connection, settings, request, phase)
        except (psycopg.OperationalError, KafkaException) as error:
            raise UnavailableError(f"a server went away during the audit: {str(error).strip()}") from error
        except (OSError, sqlite3.OperationalError) as error:
            raise UnavailableError(
                f"the disk failed during the audit, which works in {str(state or gettempdir())!r}: {error}. Make room there, or name "
                "another folder (--state with --kafka, TMPDIR), and run the audit again"
            ) from error
    if config is not None:
        # Without --config the command would use the settings of the directory in which it is run.
        found.mend = [f"{command} --config {shell_word(str(config.resolve()))}" for command in found.mend]
    if as_json:
        print_json(found.as_json())
    else:
        _print(found)
    if report is not None:
        # Last: if the disk is full, the findings have been printed.
        write_private(report, document(found.as_json()), "--report")
    if not found.clean:
        raise typer.Exit(1)


def _print(found: AuditReport) -> None:
    out = console()
    batches = (
        f"batches {found.first_batch} to {found.last_batch}"
        if found.first_batch <= found.last_batch
        else "no batches"
    )
    kept = "" if found.rows_from in (None, 1) else f" (rows are kept from batch {found.rows_from} on)"
    out.print(f"outbox {found.outbox_uuid}: {batches}{kept}")
    out.print(", ".join(f"{count} {name.replace('_', ' ')}" for name, count in found.counted.items()))
    table = Table(["check", "result", "question"], wrap_last=True)
    for check in found.checks:
        result = (
            Text(f"{check.count} wrong", "red")
            if check.failed
            else Text(f"{check.count} noted")
            if check.count
            else Text("ok", "green")
        )
        table.add(check.name, result, check.question)
    table.print(out)
    for check in found.checks:
        for example in check.examples:
            out.print(f"{check.name}: {printable(example)}", style="red" if check.failed else "")
        if len(check.examples) == EXAMPLES < check.count:
            out.print(f"{check.name}: the first {EXAMPLES} of {check.count}")
    if found.mend:
        out.print("What was lost is sent again by:")
        for command in found.mend:
            # Not through rich, which expands tabs and strips control characters and so would change keys.
            sys.stdout.write(f"{command}\n")
    out.print("clean" if found.clean else "NOT clean", style="green" if found.clean else "red")
