"""Which tests check which promise of docs/guarantees.md: `make guarantees` lists them."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from tests.support.paths import ROOT

PAGE = ROOT / "docs/guarantees.md"
_MARK = "pytest.mark.guarantee"
_LONG_RUN = "pytest.mark.faults"


class GuaranteeTest(NamedTuple):
    """A test that says which promises it checks."""

    path: str
    name: str
    promises: tuple[int, ...]
    is_long: bool
    """Whether only `make faults` runs it."""


def promises() -> dict[int, str]:
    """{number: its text} of the page."""
    return {
        int(number): text
        for number, text in re.findall(r"^- \*\*(\d+)\.\*\* (.+)$", _parts()[0], re.MULTILINE)
    }


def untested() -> dict[int, str]:
    """{number: why no test checks it} of the page."""
    return {
        int(number): why for number, why in re.findall(r"^- \*\*(\d+)\.\*\* (.+)$", _parts()[1], re.MULTILINE)
    }


def guarantee_tests() -> Iterator[GuaranteeTest]:
    """Yield every marked test, by file."""
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        text = file.read_text("utf-8")
        if _MARK in text:
            yield from _marked(file.relative_to(ROOT).as_posix(), ast.parse(text))


def _marked(path: str, module: ast.Module) -> Iterator[GuaranteeTest]:
    all_are_long = any(
        isinstance(node, ast.Assign)
        and "pytestmark" in map(ast.unparse, node.targets)
        and _LONG_RUN in ast.unparse(node.value)
        for node in module.body
    )
    for node in module.body:
        if not isinstance(node, ast.FunctionDef):
            continue
        numbers = tuple(
            ast.literal_eval(argument)
            for mark in node.decorator_list
            if isinstance(mark, ast.Call) and ast.unparse(mark.func) == _MARK
            for argument in mark.args
        )
        if numbers:
            # Exactly: the mark of one parameter is no mark of the test.
            is_long = all_are_long or _LONG_RUN in map(ast.unparse, node.decorator_list)
            yield GuaranteeTest(path, node.name, numbers, is_long)


def _parts() -> tuple[str, str]:
    text, _, tests = PAGE.read_text("utf-8").partition("\n## The tests\n")
    return text, tests


def main() -> None:
    """Print each promise with its tests."""
    tests = defaultdict(list)
    for test in guarantee_tests():
        for number in test.promises:
            tests[number].append(test)
    reasons = untested()
    for number, text in promises().items():
        print(f"{number}. {text}")
        for test in tests[number]:
            print(f"    {test.path}::{test.name}{' (make faults)' if test.is_long else ''}")
        if number in reasons:
            print(f"    not tested: {reasons[number]}")


if __name__ == "__main__":
    main()
