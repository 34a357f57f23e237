"""How every command line of this project begins and ends: the same flags, and an explained error instead of a traceback."""

import sys
from collections.abc import Callable

import typer

from service.commands.version import Version
from service.errors import OutboxError


def command_line(about: str) -> typer.Typer:
    """Return a command line without commands. It has `--help`, `--version` and the two options for the shell's completion."""
    app = typer.Typer(help=about, no_args_is_help=True, pretty_exceptions_enable=False)

    @app.callback()
    def _options(version: Version = False) -> None:
        pass

    return app


def run_command(app: Callable[[], object], name: str) -> None:
    """Run `app`; an OutboxError goes to stderr as it is and decides the exit code."""
    try:
        app()
    except OutboxError as error:
        sys.stderr.write(f"{name}: {error}\n")
        sys.exit(error.exit_code)
