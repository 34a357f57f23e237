"""Copies the pages, and every file that one of them links to, into a folder that a site can be built of. Links to files stay as they are.

python deploy/site/collect.py TARGET
"""

import re
import shutil
import sys
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[2]
_LINK = re.compile(r"\]\(([^)\s#]+)(#[^)\s]*)?\)")


def main(target: Path) -> None:
    """Begin at the front page and follow the links. The configuration goes beside the pages."""
    pages = target / "pages"
    shutil.rmtree(pages, ignore_errors=True)
    waiting, seen = [ROOT / "README.md", *sorted((ROOT / "docs" / "images").glob("*"))], set[Path]()
    while waiting:
        file = waiting.pop()
        if file in seen or not file.is_file():
            continue
        seen.add(file)
        copy = pages / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix != ".md":
            shutil.copyfile(file, copy)
            continue
        text = file.read_text("utf-8")
        waiting += [
            (file.parent / link).resolve()
            for link, _ in _LINK.findall(text)
            if "://" not in link and "mailto:" not in link
        ]
        copy.write_text(_LINK.sub(partial(_to_a_file, file), text), "utf-8")
    shutil.copyfile(Path(__file__).with_name("mkdocs.yml"), target / "mkdocs.yml")


def _to_a_file(page: Path, found: re.Match[str]) -> str:
    """A folder is linked by its README.md; one without is only named, since a site lists no folders."""
    link, anchor = found[1], found[2] or ""
    folder = (page.parent / link).resolve()
    if "://" in link or not folder.is_dir():
        return found[0]
    return f"]({link.rstrip('/')}/README.md{anchor})" if (folder / "README.md").exists() else "]"


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
