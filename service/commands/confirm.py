"""The question before a change."""

import sys

import typer

from service.errors import SettingsError


def confirm(yes: bool, question: str, reason: str, *, flag: str = "--yes") -> None:
    """Ask on stderr, unless `yes`.

    `reason`: why nothing happens without an answer; `flag`: the flag that replaces the answer in a script. Raises SettingsError if
    there is no terminal, typer.Abort if the answer is no.
    """
    if yes:
        return
    if not somebody_to_ask():
        raise SettingsError(f"{reason}, and there is nobody to ask: say {flag}. Nothing was changed.")
    typer.confirm(question, abort=True, err=True)


def somebody_to_ask() -> bool:
    """Return whether a person can answer."""
    return sys.stdin.isatty()
