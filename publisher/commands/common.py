"""What the commands have in common: their options, the outbox they work on, and how they print."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import orjson
import psycopg
import typer
from rich.console import Console

from db.connection import connect
from db.migrate import require_current
from service.errors import SettingsError
from service.settings import Settings

Config = Annotated[
    Path | None, typer.Option("--config", help="Settings file; default OUTBOX_CONFIG, else outbox.toml.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


@contextmanager
def database(settings: Settings, command: str) -> Iterator[psycopg.Connection[Any]]:
    """Connect to the outbox for a command. Raises SchemaError, UnavailableError."""
    with connect(settings.postgres, f"publisher {command}", autocommit=True) as connection:
        require_current(connection)
        yield connection


def print_json(value: object) -> None:
    """Print one JSON document."""
    sys.stdout.write(orjson.dumps(value, default=str).decode() + "\n")


def console() -> Console:
    """Return where tables go."""
    # No emoji, no markup: session keys with colons and brackets in them, and settings such as [kafka.options], must come out as they are.
    # Wide enough that a table read by a machine or a log keeps its columns.
    return Console(width=None if sys.stdout.isatty() else 160, emoji=False, markup=False)


def confirm(yes: bool, question: str, nobody: str, *, say: str = "--yes") -> None:
    """Ask, unless `yes`. Raises SettingsError with `nobody` where nobody can be asked, typer.Abort on a no. `say`: the flag for scripts."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise SettingsError(f"{nobody}, and there is nobody to ask: say {say}. Nothing was changed")
    typer.confirm(question, abort=True, err=True)
