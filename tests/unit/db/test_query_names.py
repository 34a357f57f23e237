"""Every name of a query that the code asks for exists, and every query is asked for."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.query_files import FOLDERS, ROOT, QueryFile, query_files

FILES = query_files()


class Use(NamedTuple):
    """A place that asks for a query; `name` None: for every one of the file. "": for one that the code does not spell out."""

    where: str
    file: QueryFile
    name: str | None


def uses(source: str, where: str) -> Iterator[Use]:
    """Yield what a module asks for: `queries("package", "subject")["name"]`, or by a variable that holds the queries."""
    tree = ast.parse(source)
    above = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    variables: dict[str, QueryFile] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and (file := _loaded(node.value)):
            variables |= {target.id: file for target in node.targets if isinstance(target, ast.Name)}
    for node in ast.walk(tree):
        file = _loaded(node)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            file = variables.get(node.id)
        if file is None or isinstance(above[node], ast.Assign):
            continue
        yield Use(f"{where}:{getattr(node, 'lineno', 0)}", file, _asked(node, above[node]))


def _loaded(node: ast.AST) -> QueryFile | None:
    match node:
        case ast.Call(
            func=ast.Name(id="queries"),
            args=[ast.Constant(value=str(package)), ast.Constant(value=str(subject))],
        ):
            return QueryFile(package, subject)
    return None


def _asked(node: ast.AST, parent: ast.AST) -> str | None:
    match parent:
        case ast.Subscript(slice=ast.Constant(value=str(name))):
            return name
        case ast.Attribute(attr="items" | "values"):
            return None
        case ast.Call(
            func=ast.Attribute(attr="setitem"), args=[first, ast.Constant(value=str(name)), *_]
        ) if first is node:
            return name
    return ""


@cache
def found() -> list[Use]:
    """Everything that is asked for in the repository."""
    return [
        use
        for folder in (*FOLDERS, "devstack", "service", "tests")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if "from db.statements import" in (source := path.read_text("utf-8"))
        for use in uses(source, str(path.relative_to(ROOT)))
    ]


def test_every_name_is_spelled_out_where_it_is_asked_for() -> None:
    assert [use.where for use in found() if use.name == ""] == []


def test_every_query_that_is_asked_for_exists() -> None:
    assert [use for use in found() if use.file not in FILES] == []
    assert [use for use in found() if use.name and use.name not in use.file.load()] == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.package}/{file.subject}")
def test_every_query_is_asked_for_by_its_part(file: QueryFile) -> None:
    """A test's use is none, and the services do not run each other's queries."""
    part = file.package.partition(".")[0]
    own = [use for use in found() if use.file == file and Path(use.where).parts[0] == part]
    names = {name for use in own for name in (file.load() if use.name is None else [use.name])}
    assert set(file.load()) - names == set()


def test_a_part_asks_for_no_query_of_another() -> None:
    """Benchmarks and tests run everybody's."""
    others = [
        use
        for use in found()
        if (part := Path(use.where).parts[0]) not in ("benchmarks", "tests")
        and part != use.file.package.partition(".")[0]
    ]
    assert others == []


def test_uses_are_found_in_every_way_to_ask() -> None:
    source = """
_A = queries("p", "a")
execute(_A["one"], queries("p", "b")["two"])
patch.setitem(_A, "three", "")
for query in _A.values(): ...
_A[name]
run(_A)
"""
    asked = [(use.file.subject, use.name) for use in uses(source, "x.py")]
    assert sorted(asked, key=str) == sorted(
        [("a", "one"), ("b", "two"), ("a", "three"), ("a", None), ("a", ""), ("a", "")], key=str
    )
