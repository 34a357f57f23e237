"""Where commands print, and how they print JSON."""

import sys

from rich.console import Console

from service.json_text import json_text


def console() -> Console:
    """Return standard output, for people. It takes text as it is: no markup, no emoji, nothing cut or wrapped."""
    return Console(emoji=False, markup=False, highlight=False, soft_wrap=True)


def error_console() -> Console:
    """Return standard error: progress, questions and what must not mix with a document on standard output."""
    return Console(stderr=True, emoji=False, markup=False, highlight=False, soft_wrap=True)


def print_json(value: object) -> None:
    """Print one indented JSON document; times as ISO 8601."""
    sys.stdout.write(document(value))


def document(value: object) -> str:
    """Return one indented JSON document with its final newline."""
    return json_text(value, indented=True) + "\n"
