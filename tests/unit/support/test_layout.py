"""Tests, fixtures and helpers keep apart: what several tests need is in tests/support, and a folder can be read at a glance."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.support.paths import ROOT

MOST_MODULES = 12


def modules() -> list[Path]:
    """Every module of the tests, below the checkout."""
    return sorted(path.relative_to(ROOT) for path in (ROOT / "tests").rglob("*.py"))


def imported(module: Path) -> Iterator[str]:
    """Names of what a module imports, and of what it imports from there."""
    for node in ast.walk(ast.parse((ROOT / module).read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{name.name}" for name in node.names)


def test_nothing_is_imported_from_a_test_module_or_a_conftest() -> None:
    wrong = [
        (str(module), name)
        for module in modules()
        for name in imported(module)
        if name.startswith("tests.")
        and any(part == "conftest" or part.startswith("test_") for part in name.split("."))
    ]
    assert wrong == []


def test_a_helper_that_tests_share_is_in_support() -> None:
    wrong = [
        (str(module), name)
        for module in modules()
        for name in imported(module)
        if name.startswith("tests.") and name.split(".")[1] not in ("support", "soak", "fuzz", "matrix")
    ]
    assert wrong == []


def test_no_folder_holds_more_modules_than_can_be_read_at_a_glance() -> None:
    found = Counter(module.parent for module in modules())
    assert {str(folder): number for folder, number in found.items() if number > MOST_MODULES} == {}
