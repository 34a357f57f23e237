"""A page whose tables are compared is wrong when any number in them is, and when a row of them is never looked at."""

from pathlib import Path

import pytest

from tests.support.pages.compared import ComparedPage

PAGE = """
Prose.

| step | `end` | what happens |
| --- | --- | --- |
| 1 | 1/1 | the *first* batch |

| step | `end` | what happens |
| --- | --- | --- |
| 2 | 3/3 | the second |

| other table | |
| --- | --- |
| 1 | never compared |
"""


@pytest.fixture
def page(tmp_path: Path) -> ComparedPage:
    return parsed(tmp_path, PAGE)


def test_tables_with_the_same_first_column_are_parts_of_one_table(page: ComparedPage) -> None:
    assert page.column("step", "what happens") == ["the first batch", "the second"]


def test_a_page_that_says_what_was_found_is_right(page: ComparedPage) -> None:
    page.compare("step", "1", {"end": "1/1"})
    page.compare("step", "2", {"end": "3/3"})
    page.assert_true()


def test_a_number_that_differs_is_named(page: ComparedPage) -> None:
    page.compare("step", "1", {"end": "1/1"})
    page.compare("step", "2", {"end": "3/2"})
    with pytest.raises(AssertionError, match="step 2, 'end': the page says '3/3', found '3/2'"):
        page.assert_true()


def test_a_column_or_a_row_that_the_page_leaves_out_is_a_difference(page: ComparedPage) -> None:
    page.compare("step", "1", {"end": "1/1", "start": "0/0"})
    page.compare("step", "2", {"end": "3/3"})
    page.compare("step", "3", {"end": "4/4"})
    assert page.differences == [
        "step 1, 'start': the page says None, found '0/0'",
        "step 3: not on the page, found {'end': '4/4'}",
    ]


def test_a_row_that_was_never_looked_at_is_an_error(page: ComparedPage) -> None:
    page.compare("step", "1", {"end": "1/1"})
    with pytest.raises(AssertionError, match=r"never looked at: \[\('step', '2'\)\]"):
        page.assert_true()


def test_a_row_that_is_there_twice_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="twice"):
        parsed(tmp_path, PAGE + PAGE)


def parsed(folder: Path, text: str) -> ComparedPage:
    file = folder / "page.md"
    file.write_text(text, "utf-8")
    return ComparedPage.read(str(file))
