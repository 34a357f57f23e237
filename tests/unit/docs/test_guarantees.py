"""docs/guarantees.md: each promise and each non-promise names tests that exist, or says plainly that none does."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.support.pages.markdown import tables
from tests.support.paths import ROOT

PAGE = Path("docs/guarantees.md")
HEADS = (["promise", "checked by"], ["not promised", "shown by"])
_TEST = re.compile(r"\[([^\]]+)\]\(\.\./(tests/[\w/]+\.py)\)( †)?")
_UNTESTED = re.compile(r"not tested: \S.+")
_LONG_RUN = "pytest.mark.faults"


def rows() -> list[tuple[str, str]]:
    """(promise, what checks it) of every row of the page."""
    found = []
    for head, body in tables(PAGE):
        assert head in HEADS, f"{PAGE} has a table that begins with {head}"
        for row in body:
            assert len(row) == 2, f"{PAGE}: a row with {len(row)} cells: {row}"
            found.append((row[0], row[1]))
    return found


@cache
def defined_in(path: str) -> dict[str, bool]:
    """{name of a test: whether only `make faults` runs it} of a file."""
    module = ast.parse((ROOT / path).read_text("utf-8"))
    all_of_them = any(
        _LONG_RUN in ast.unparse(node.value)
        for node in module.body
        if isinstance(node, ast.Assign) and "pytestmark" in {ast.unparse(target) for target in node.targets}
    )
    return {
        # Exactly: the mark of one parameter is no mark of the test.
        node.name: all_of_them or _LONG_RUN in {ast.unparse(decorator) for decorator in node.decorator_list}
        for node in module.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def where(name: str) -> str:
    """Where a test is now, for whoever moved it."""
    files = (path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py"))
    found = [path for path in files if name in defined_in(path)]
    return f"It is in {', '.join(found)} now" if found else "Was it renamed?"


@pytest.mark.parametrize(("promise", "checked_by"), rows(), ids=lambda text: text[:40])
def test_a_row_names_tests_that_exist_or_says_that_there_is_none(promise: str, checked_by: str) -> None:
    if _UNTESTED.fullmatch(checked_by):
        return
    named = _TEST.findall(checked_by)
    assert named, f"{promise!r} names no test, and does not say `not tested: ` and why"
    assert re.fullmatch(r"(; )*", _TEST.sub("", checked_by)), (
        f"{checked_by!r} is more than tests and `; ` between them"
    )
    for label, path, dagger in named:
        name = "test_" + label.replace(" ", "_")
        found = defined_in(path) if (ROOT / path).is_file() else {}
        assert name in found, f"{promise!r}: {path} has no {name}. {where(name)}"
        assert found[name] == bool(dagger), f"{path}::{name}: † is for the tests that `make faults` runs"


def test_the_page_has_promises_and_what_is_not_promised() -> None:
    heads = [head for head, _ in tables(PAGE)]
    assert all(head in heads for head in HEADS)
    promises = [promise for promise, _ in rows()]
    assert len(promises) == len(set(promises)) > 100


def test_every_numbered_promise_has_its_row_and_every_row_its_promise() -> None:
    text = (ROOT / PAGE).read_text("utf-8")
    assert re.findall(r"^- \*\*(\d+)\.\*\*", text, re.MULTILINE) == [number for number, _ in rows()]
