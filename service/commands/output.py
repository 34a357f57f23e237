"""Where commands print, and how they print JSON. Nothing of either acts on a terminal, whatever the text holds."""

import sys
from typing import Any

from rich.console import Console

from service.json_text import json_text
from service.printable import printable, printable_json


class _Terminal(Console):
    """Prints text with what a terminal could act on as escapes, but for line ends and tabs."""

    def print(self, *objects: Any, **options: Any) -> None:
        """As rich does."""
        super().print(
            *(printable(each, keep="\n\t") if isinstance(each, str) else each for each in objects), **options
        )


def console() -> Console:
    """Return standard output, for people. It takes text as it is: no markup, no emoji, nothing cut or wrapped."""
    return _Terminal(emoji=False, markup=False, highlight=False, soft_wrap=True)


def error_console() -> Console:
    """Return standard error: progress, questions and what must not mix with a document on standard output."""
    return _Terminal(stderr=True, emoji=False, markup=False, highlight=False, soft_wrap=True)


def print_json(value: object) -> None:
    """Print one indented JSON document; times as ISO 8601."""
    sys.stdout.write(document(value))


def document(value: object) -> str:
    """Return one indented JSON document with its final newline."""
    return printable_json(json_text(value, indented=True)) + "\n"
