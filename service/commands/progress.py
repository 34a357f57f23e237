"""The progress bar of a long command."""

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from service.commands.output import error_console


def progress_bar(*more: ProgressColumn, quiet: bool = False) -> Progress:
    """Return a bar on standard error that vanishes at its end. Nothing is shown with `quiet`, or where no terminal is.

    Each task shows its description, its bar, how much of how much is done, `more` columns, and the time that is left.
    """
    errors = error_console()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        *more,
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=errors, disable=quiet or not errors.is_terminal, transient=True)
