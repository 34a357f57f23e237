"""docs/runbook.md as the console shows it, one section for each alert. Reads the copy in this package (`make docs` writes it)."""

import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import NamedTuple

_SPAN = re.compile(r"`([^`]+)`|\[([^\]]+)\]\(([^)]+)\)")


class RunbookSpan(NamedTuple):
    """A span of a paragraph. `kind`: text, code, alert (`to`: the anchor of its section), or page (`to`: the path of a document)."""

    kind: str
    text: str
    to: str = ""


class RunbookPart(NamedTuple):
    """A part of a section: a paragraph (`spans`), or `code`, which is commands (`kind` sh) or SQL (`kind` sql)."""

    kind: str
    spans: tuple[RunbookSpan, ...] = ()
    code: str = ""


class RunbookSection(NamedTuple):
    """One alert: its meaning, what to check, what to do."""

    alert: str
    parts: tuple[RunbookPart, ...]


@cache
def sections() -> tuple[RunbookSection, ...]:
    """Return the alerts in the order of the page."""
    text = files("publisher.console.alerts").joinpath("runbook.txt").read_text("utf-8")
    found = []
    for section in text.split("\n## ")[1:]:
        alert, _, body = section.partition("\n")
        found.append(RunbookSection(alert, tuple(_parts(body))))
    return tuple(found)


def _parts(body: str) -> Iterator[RunbookPart]:
    for part in body.strip("\n").split("\n\n"):
        if part.startswith("```"):
            kind, *lines = part.removeprefix("```").splitlines()
            yield RunbookPart(kind, code="\n".join(lines[:-1]))
        else:
            yield RunbookPart("text", tuple(_spans(" ".join(part.split()))))


def _spans(text: str) -> list[RunbookSpan]:
    spans, at = [], 0
    for found in _SPAN.finditer(text):
        if found.start() > at:
            spans.append(RunbookSpan("text", text[at : found.start()]))
        at = found.end()
        code, words, target = found.groups()
        if code:
            spans.append(RunbookSpan("code", code))
        elif target.startswith("#"):
            spans.append(RunbookSpan("alert", words, target.removeprefix("#")))
        else:
            spans.append(RunbookSpan("page", words.replace("`", ""), f"docs/{target.partition('#')[0]}"))
    if at < len(text):
        spans.append(RunbookSpan("text", text[at:]))
    return spans
