"""The Markdown pages of the repository, taken apart for the tests that hold them true."""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.paths import ROOT

_FENCE = re.compile(r"\s*(```|~~~)")
_LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
_CODE = re.compile(r"`+[^`]*`+")
_HEADING = re.compile(r"(#{1,6}) +(.*?)(?: +#+)?$")
_SEPARATOR = re.compile(r"[|\s:-]+")


def pages() -> list[Path]:
    """Every page, below folders that are not hidden."""
    found = (path.relative_to(ROOT) for path in ROOT.rglob("*.md"))
    return sorted(
        path for path in found if not any(part.startswith(".") or part == "build" for part in path.parts)
    )


def prose(page: Path) -> Iterator[tuple[int, str]]:
    """(line number, line) of a page outside of its code blocks."""
    fence = None
    for number, line in enumerate((ROOT / page).read_text("utf-8").splitlines(), 1):
        opened = _FENCE.match(line)
        if opened and fence in (None, opened[1]):
            fence = None if fence else opened[1]
        elif fence is None:
            yield number, line


def links(page: Path) -> Iterator[tuple[int, str]]:
    """(line number, target) of every link and image, those in code left out."""
    for number, line in prose(page):
        # Code is text for a reader, but it may be a link's label.
        for _, target in _LINK.findall(_CODE.sub("code", line)):
            yield number, target


def anchors(page: Path) -> set[str]:
    """What a link may name behind `#`: each heading as GitHub makes an anchor of it, the later ones of equal headings numbered."""
    found: dict[str, int] = {}
    result = set()
    for _, line in prose(page):
        if heading := _HEADING.match(line):
            text = _LINK.sub(r"\1", heading[2]).replace("`", "").lower()
            slug = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
            number = found.get(slug, 0)
            found[slug] = number + 1
            result.add(f"{slug}-{number}" if number else slug)
    return result


def code_block(page: Path, language: str, containing: str) -> str:
    """Return the one block of code of a page that has this text."""
    blocks = re.findall(
        rf"^```{language}\n(.*?)^```", (ROOT / page).read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    (found,) = [str(block) for block in blocks if containing in block]
    return found


def tables(page: Path) -> Iterator[tuple[list[str], list[list[str]]]]:
    """(head, rows) of every table, each cell as it is written."""
    rows: list[list[str]] = []
    for _, line in [*prose(page), (0, "")]:
        if line.startswith("|"):
            if not _SEPARATOR.fullmatch(line) or not rows:
                rows.append([cell.strip() for cell in line.strip().strip("|").split("|")])
        elif rows:
            yield rows[0], rows[1:]
            rows = []
