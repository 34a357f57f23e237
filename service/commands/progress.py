"""The progress bar of a long command."""

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TimeRemainingColumn,
)
from rich.text import Text

from service.commands.output import error_console
from service.printable import printable


class _Description(ProgressColumn):
    """As it is: it may name a consumer, and is no markup. Nothing in it acts on the terminal."""

    def render(self, task: Task) -> Text:
        """As rich does."""
        return Text(printable(task.description))


def progress_bar(*more: ProgressColumn, quiet: bool = False) -> Progress:
    """Return a bar on standard error that vanishes at its end. Nothing is shown with `quiet`, or where no terminal is.

    Each task shows its description, its bar, how much of how much is done, `more` columns, and the time that is left.
    """
    errors = error_console()
    columns = (
        _Description(),
        BarColumn(),
        MofNCompleteColumn(),
        *more,
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=errors, disable=quiet or not errors.is_terminal, transient=True)
