"""How every command line of this project begins and ends: the same flags, and an explained error instead of a traceback."""

import errno
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from service.commands.version import Version
from service.errors import OutboxError, UnavailableError
from service.printable import printable


class DeferredCommand(TyperCommand):
    """A command whose module is imported when the command is used, because help and completion must be quick."""

    def __init__(
        self, name: str, about: str, target: str, *, hidden: bool = False, **context_settings: Any
    ) -> None:
        """`about`: the command's line in the list of commands. `target`: `module:name` of a function, or of a Typer of several."""
        super().__init__(name, help=about, short_help=about, hidden=hidden, context_settings=context_settings)
        self._target = target

    def load(self) -> Any:
        """Return the command itself."""
        module, _, name = self._target.partition(":")
        found = getattr(import_module(module), name)
        holder = command_line("", [])
        if isinstance(found, typer.Typer):
            holder.add_typer(found, name=self.name)
        else:
            holder.command(self.name, context_settings=dict(self.context_settings))(found)
        command = typer.main.get_group(holder).commands[self.name or ""]
        for inner in getattr(command, "commands", {}).values():
            # Otherwise the list of commands truncates it.
            inner.short_help = (inner.help or "").partition("\n\n")[0]
        return command

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """Let the command itself read its arguments, run, show its help and complete."""
        command = self.load()
        # Imported here: help and completion must be quick.
        from service.observability import logs
        from service.settings import LogSettings

        # Before the command has read its settings, too, its logs go to stderr: stdout is for its answer.
        logs.configure(LogSettings())
        return command.make_context(*arguments, **options)


def command_line(about: str, commands: Sequence[DeferredCommand]) -> typer.Typer:
    """Return a command line with `--help`, `--version` and the two options for the shell's completion."""

    class Commands(TyperGroup):
        def __init__(self, **attributes: Any) -> None:
            super().__init__(**attributes)
            self.commands.update({command.name or "": command for command in commands})

    # No markup: `[postgres]`, a table of the settings, would be dropped as a style.
    app = typer.Typer(
        help=about, cls=Commands, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None
    )

    @app.callback()
    def _options(version: Version = False) -> None:
        pass

    return app


def run_command(app: Callable[[], object], name: str) -> None:
    """Run `app`. An OutboxError prints its message to stderr and decides the exit code, as do a full disk and a failed statement.

    Other errors are bugs: a traceback, exit code 1.
    """
    try:
        try:
            try:
                app()
            finally:
                # Flushed here, where a full disk can be explained, and not when Python ends.
                with suppress(AttributeError, ValueError, BrokenPipeError):
                    sys.stdout.flush()
        except OutboxError:
            raise
        except Exception as error:
            # Imported here: help and completion must be quick.
            from service.commands.postgres_failures import explained

            explanation = _full_disk(error) or explained(error)
            if explanation is None:
                _say(traceback.format_exc())
                sys.exit(1)
            raise explanation from error
    except OutboxError as error:
        _say(f"{name}: {error}\n")
        sys.exit(error.exit_code)


def _full_disk(error: Exception) -> UnavailableError | None:
    """Return the explanation if there is no room for the output of a command; None for another error."""
    if not isinstance(error, OSError) or error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return None
    # Python would flush again when it ends, and exit with another code.
    with suppress(OSError, ValueError, AttributeError), open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
    return UnavailableError(
        f"{error.filename or 'standard output'!s} cannot be written: {error.strerror}. Make room there and run the command again; what it "
        "has changed stays changed"
    )


def _say(text: str) -> None:
    # If stderr is closed or its disk full, the exit code still tells the cause.
    with suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(printable(text, keep="\n\t"))
