"""The commands of `devstack`."""

import json
import os
import shlex
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import psycopg
import typer
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn
from rich.table import Table

from devstack import topics
from devstack.postgres import client_program
from devstack.processes.errors import DevstackError
from devstack.processes.server import LocalServer
from devstack.stack import KAFKA_VARIABLE, POSTGRES_VARIABLE
from devstack.state import STATE_FILE, DetachedStack, load, locked
from service.settings.dsn import secrets_in

DATABASE = "outbox"
SPARK_VARIABLE = "OUTBOX_JOB__MASTER"
_ADDRESSES = ("dsn", "bootstrap_servers", "url")

# For people; stdout is kept for what a shell or a program reads.
screen = Console(stderr=True)

Directory = Annotated[
    Path, typer.Option("--dir", help="Where the data, the logs and the state file are.", file_okay=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout instead of text.")]
DEFAULT_DIRECTORY = Path(".devstack")


def up(
    directory: Directory = DEFAULT_DIRECTORY,
    fast: Annotated[
        bool,
        typer.Option(
            "--fast",
            help="Postgres without fsync loses data if the machine crashes; Kafka's JVM compiles quickly, not well.",
        ),
    ] = False,
    heap: Annotated[str, typer.Option(help="Heap of Kafka's JVM, as in -Xmx.", metavar="SIZE")] = "512m",
    spark_workers: Annotated[
        int,
        typer.Option(
            help="Also a Spark cluster: a master and so many workers of a core and 1 GB each.", min=0, max=16
        ),
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Start the servers in the background and create the database `outbox`.

    Prints their addresses as export lines, so that `eval "$(devstack up)"` sets them for the shell. What runs
    already is left alone. The first start downloads Kafka's jars (44 MB) into the user's cache.
    """
    with _progress() as report, locked(directory):
        jars = partial(report, "Kafka's jars")
        stack = load(directory, fast=fast, heap=heap, spark_workers=spark_workers, progress=jars)
        with ExitStack() as undo:
            for server in stack.servers:
                if server.is_running():
                    continue
                report(f"starting {server.name}", 0, 0)
                undo.callback(stack.save)
                undo.callback(server.kill)
                server.start()
                stack.save()
            if not stack.postgres.has_database(DATABASE):
                stack.postgres.create_database(DATABASE)
            undo.pop_all()
    if as_json:
        print(json.dumps(_report(stack), indent=2))
    else:
        screen.print(_table(stack))
        print(f"export {POSTGRES_VARIABLE}={shlex.quote(stack.postgres.dsn(DATABASE))}")
        print(f"export {KAFKA_VARIABLE}={shlex.quote(stack.kafka.bootstrap_servers)}")
        if stack.spark_master is not None:
            print(f"export {SPARK_VARIABLE}={shlex.quote(stack.spark_master.url)}")


def down(
    directory: Directory = DEFAULT_DIRECTORY,
    keep_data: Annotated[
        bool, typer.Option("--keep-data", help="Shut down cleanly and keep the data for the next `up`.")
    ] = False,
) -> None:
    """Stop the servers that `up` started in this directory, and delete their data.

    Only the recorded processes are touched: a process that merely has the same pid by now is not.
    """
    if not directory.exists():
        screen.print(f"Nothing to stop: there is no {directory}.")
        return
    with locked(directory):
        stack = load(directory)
        for server in reversed(stack.servers):
            was_running = server.is_running()
            if keep_data:
                server.stop()
            else:
                server.destroy()
            screen.print(f"{server.name}: {'stopped' if was_running else 'was not running'}")
        if not keep_data:
            (directory / STATE_FILE).unlink(missing_ok=True)
            if not any(directory.iterdir()):
                shutil.rmtree(directory)


def status(directory: Directory = DEFAULT_DIRECTORY, as_json: AsJson = False) -> None:
    """Show what runs. Exit code 1 when one of the servers does not."""
    stack = load(directory)
    if as_json:
        print(json.dumps(_report(stack), indent=2))
    else:
        Console().print(_table(stack))
    if not all(server.is_running() for server in stack.servers):
        raise typer.Exit(1)


def psql(context: typer.Context) -> None:
    """Open this Postgres' psql on the outbox that OUTBOX_POSTGRES__DSN names.

    Everything after `psql` is for psql itself: another DSN first, `-c QUERY`, `-f FILE`, `--help`.
    """
    arguments, environment = context.args, dict(os.environ)
    if not arguments or arguments[0].startswith("-"):
        dsn = os.environ.get(POSTGRES_VARIABLE)
        if dsn is None and arguments != ["--help"]:
            raise DevstackError(
                f'{POSTGRES_VARIABLE} is not set: run `eval "$(devstack up)"` first, or give a DSN: devstack psql postgresql://...'
            )
        if dsn is not None:
            named, password = _without_password(dsn)
            environment |= password
            arguments = [named, *arguments]
    program = str(client_program("psql"))
    os.execve(program, [program, *arguments], environment)


def _without_password(dsn: str) -> tuple[str, dict[str, str]]:
    """Return a DSN for a command line, which others see, and the environment's part of it. Raises DevstackError."""
    try:
        parts = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        # Its message quotes the text.
        raise DevstackError(f"{POSTGRES_VARIABLE} is no DSN that libpq can read") from None
    password = parts.pop("password", None)
    if secrets := secrets_in(parts):
        raise DevstackError(
            f"{POSTGRES_VARIABLE} has {secrets[0]}, which other users of this machine would see on psql's command line"
        )
    if password is None:
        return dsn, {}
    return make_conninfo("", **parts), {"PGPASSWORD": str(password)}


def create_topics(
    names: Annotated[list[str], typer.Argument(metavar="TOPIC...", show_default=False)],
    partitions: Annotated[int, typer.Option(min=1, help="Partitions of each.")] = 4,
) -> None:
    """Create topics on the Kafka that OUTBOX_KAFKA__BOOTSTRAP_SERVERS names. One that exists stays as it is."""
    bootstrap = os.environ.get(KAFKA_VARIABLE)
    if bootstrap is None:
        raise DevstackError(f'{KAFKA_VARIABLE} is not set: run `eval "$(devstack up)"` first')
    topics.create_topics(bootstrap, {name: (partitions, {}) for name in names})


def _report(stack: DetachedStack) -> dict[str, Any]:
    """What `--json` prints for each server: `running`, `pid`, `log` and, where clients need it, its address (null when down)."""
    servers = {each.key: _server_report(each) for each in stack.servers}
    postgres, kafka, spark = stack.postgres, stack.kafka, stack.spark_master
    servers[postgres.key]["dsn"] = postgres.dsn(DATABASE) if postgres.is_running() else None
    servers[kafka.key]["bootstrap_servers"] = kafka.bootstrap_servers if kafka.is_running() else None
    if spark is not None:
        servers[spark.key]["url"] = spark.url if spark.is_running() else None
    return {"directory": str(stack.directory), **servers}


def _server_report(server: LocalServer) -> dict[str, Any]:
    running = server.is_running()
    pid = server.process.identity.pid if running else None
    return {"running": running, "pid": pid, "log": str(server.log)}


def _table(stack: DetachedStack) -> Table:
    table = Table("server", "state", "pid", box=None)
    table.add_column("address", overflow="fold")
    table.add_column("log", overflow="fold")
    report = _report(stack)
    for each in stack.servers:
        server = report[each.key]
        state = "[green]running[/]" if server["running"] else "[red]not running[/]"
        address = next((server[name] for name in _ADDRESSES if server.get(name)), "")
        table.add_row(each.key, state, str(server["pid"] or ""), address, server["log"])
    return table


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    """A spinner with what is going on, and a bar where a total is known: call it with (what, done, total)."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=screen, transient=True) as display:
        task = display.add_task("looking", total=None)

        def report(what: str, done: int, total: int) -> None:
            display.update(task, description=what, completed=done, total=total or None)

        yield report
