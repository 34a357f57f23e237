"""Where commands print, and how they print JSON."""

import sys

import orjson
from rich.console import Console


def console() -> Console:
    """Return standard output, for people. It takes text as it is: no markup, no emoji, nothing cut or wrapped."""
    return Console(emoji=False, markup=False, highlight=False, soft_wrap=True)


def error_console() -> Console:
    """Return standard error: progress, questions and what must not mix with a document on standard output."""
    return Console(stderr=True, emoji=False, markup=False, highlight=False, soft_wrap=True)


def print_json(value: object) -> None:
    """Print one indented JSON document; times as ISO 8601."""
    sys.stdout.write(json_text(value))


def json_text(value: object) -> str:
    """Return one indented JSON document with its final newline."""
    options = orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS | orjson.OPT_APPEND_NEWLINE
    return orjson.dumps(value, option=options, default=str).decode()
