"""The question before a change."""

import sys

import typer

from service.errors import SettingsError


def confirm(yes: bool, question: str, reason: str, *, flag: str = "--yes") -> None:
    """Ask on stderr, unless `yes`.

    `reason`: why nothing happens without an answer; `flag`: what a script says instead of answering. Raises SettingsError where nobody
    can be asked, typer.Abort on a no.
    """
    if yes:
        return
    if not somebody_to_ask():
        raise SettingsError(f"{reason}, and there is nobody to ask: say {flag}. Nothing was changed.")
    typer.confirm(question, abort=True, err=True)


def somebody_to_ask() -> bool:
    """Whether a person sits at the other end."""
    return sys.stdin.isatty()
