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
    """Foreign text, such as a consumer's name: no markup, and no character that controls the terminal."""

    def render(self, task: Task) -> Text:
        """As rich does."""
        return Text(printable(task.description))


def progress_bar(*more: ProgressColumn, quiet: bool = False) -> Progress:
    """Return a bar on standard error that vanishes at its end. With `quiet`, or without a terminal, it shows nothing.

    Each task shows its description, its bar, the part that is done, `more` columns, and the remaining time.
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
