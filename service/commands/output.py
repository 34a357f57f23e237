"""The output of commands, as text and as JSON. Foreign text in either cannot control a terminal."""

import sys
from typing import Any

from rich.console import Console
from rich.text import Text

from service.json_text import json_text
from service.printable import printable, printable_json


class _Terminal(Console):
    """Prints text with characters that control a terminal as escapes, except line ends and tabs."""

    def print(self, *objects: Any, **options: Any) -> None:
        """As rich does."""
        super().print(*map(_printable, objects), **options)


def _printable(value: Any) -> Any:
    match value:
        case str():
            return printable(value, keep="\n\t")
        case Text():
            return printable_text(value, keep="\n\t")
        case _:
            return value


def printable_text(text: Text, *, keep: str = "") -> Text:
    """Return styled text with characters that control a terminal as escapes. If it has any, its parts lose their own styles."""
    shown = printable(text.plain, keep=keep)
    return text if shown == text.plain else Text(shown, text.style)


def console() -> Console:
    """Return standard output, for people. It takes text as it is: no markup, no emoji, nothing cut or wrapped."""
    return _Terminal(emoji=False, markup=False, highlight=False, soft_wrap=True)


def error_console() -> Console:
    """Return standard error, for progress, questions and all text that must not mix with a document on standard output."""
    return _Terminal(stderr=True, emoji=False, markup=False, highlight=False, soft_wrap=True)


def print_json(value: object) -> None:
    """Print one indented JSON document; times as ISO 8601."""
    sys.stdout.write(document(value))


def document(value: object) -> str:
    """Return one indented JSON document with its final newline."""
    return printable_json(json_text(value, indented=True)) + "\n"
