"""Every link of every page leads somewhere. Without a network: what is elsewhere is not asked for."""

from pathlib import Path

import pytest

from tests.support.pages.markdown import anchors, links, pages
from tests.support.paths import ROOT


@pytest.mark.parametrize("page", pages(), ids=str)
def test_every_link_between_pages_leads_to_a_file_and_a_heading(page: Path) -> None:
    broken = []
    for number, target in links(page):
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = target.partition("#")
        place = (ROOT / page.parent / path).resolve() if path else ROOT / page
        if not place.exists():
            broken.append(f"{page}:{number}: there is no {target}")
        elif not place.is_relative_to(ROOT):
            broken.append(f"{page}:{number}: {target} leads out of the repository")
        elif anchor and anchor not in anchors(place.relative_to(ROOT)):
            broken.append(f"{page}:{number}: {path or page} has no heading for #{anchor}")
    assert not broken, "\n".join(broken)


def test_every_page_of_the_documentation_is_in_its_index() -> None:
    index = Path("docs/README.md")
    listed = {(ROOT / index.parent / target.partition("#")[0]).resolve() for _, target in links(index)}
    decisions = ROOT / "docs" / "decisions"  # has an index of its own
    missing = [
        str(page)
        for page in pages()
        if page.parts[0] == "docs" and page != index and (ROOT / page).resolve() not in listed
    ]
    assert [page for page in missing if not (ROOT / page).is_relative_to(decisions)] == []
