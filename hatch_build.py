"""Builds the wheel: packages with everybody's names (`db`, `service`, …) are below `spark_outbox` there, and what names them is rewritten.

A checkout stays as it is, an editable install, too (docs/decisions/0022-package.md). What cannot be rewritten ends the build.
"""

import ast
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NAMESPACE = "spark_outbox"
MOVED = frozenset({"publisher", "contract", "service", "db", "devstack"})
_BY_PACKAGE = frozenset({"files", "queries"})
"""Functions whose first argument is the name of a package."""
_MODULE = re.compile(r"([a-z_]+(?:\.[a-z_]+)+)(?::[a-z_]+)?")
_RUN = re.compile(rf"(?<=python -m )(?=(?:{'|'.join(sorted(MOVED))})\b)")


class WheelHook(BuildHookInterface):  # type: ignore[type-arg]
    """Takes the files that the wheel would have, and gives it the rewritten ones."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the rewritten files into a folder, and have the wheel made of them."""
        if version == "editable":
            return
        builder = self.build_config.builder
        selected = list(builder.recurse_selected_project_files())
        modules = frozenset(_modules(each.distribution_path for each in selected))
        self._folder = Path(tempfile.mkdtemp())
        for each in selected:
            path = self._folder / _place(each.distribution_path)
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(each.path, path)
            if path.suffix in (".py", ".txt"):
                text = path.read_text("utf-8")
                text = rewritten(text, modules, each.distribution_path) if path.suffix == ".py" else text
                path.write_text(_RUN.sub(f"{NAMESPACE}.", text), "utf-8")
            build_data["force_include"][str(path)] = _place(each.distribution_path)
        self.build_config.set_exclude_all()
        scripts = self.metadata.core.scripts
        scripts.update({name: _named(target) for name, target in scripts.items()})

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the folder."""
        if version != "editable":
            shutil.rmtree(self._folder)


class _Edit(NamedTuple):
    line: int
    column: int
    """In bytes, as `ast` counts."""
    before: str
    after: str


def rewritten(source: str, modules: frozenset[str], path: str = "<source>") -> str:
    """Return a module that names the moved ones by their new names. `modules`: all there are, by their old names."""
    lines = [line.encode() for line in source.splitlines(keepends=True)]
    # From the end, so that a column stays what it was; a string may be both in a list and an argument.
    for edit in sorted(set(_edits(ast.parse(source), modules)), reverse=True):
        line, at = lines[edit.line - 1], edit.column
        before = edit.before.encode()
        if not line[at:].startswith(before):
            raise ValueError(
                f"{path}, line {edit.line}: write {edit.before!r} in one piece, for the wheel renames it"
            )
        lines[edit.line - 1] = line[:at] + edit.after.encode() + line[at + len(before) :]
    return b"".join(lines).decode()


def _edits(tree: ast.AST, modules: frozenset[str]) -> Iterator[_Edit]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            if _is_moved(node.module):
                yield _edit(node, f"from {node.module} ", f"from {NAMESPACE}.{node.module} ")
        elif isinstance(node, ast.Import) and any(_is_moved(each.name) for each in node.names):
            # `import a.b` binds a, which there is not; with several names in a line it is not worth a rule.
            name = ast.unparse(node).removeprefix("import ")
            after = f"from {NAMESPACE} import {name}" if name in MOVED else "?"
            yield _edit(node, f"import {name}" if name in MOVED else "from … import …", after)
        elif isinstance(node, ast.Call) and node.args and ast.unparse(node.func) in _BY_PACKAGE:
            yield from _edits_of_a_string(node.args[0], MOVED)
        else:
            yield from _edits_of_a_string(node, modules)


def _edits_of_a_string(node: ast.AST, names: frozenset[str]) -> Iterator[_Edit]:
    """Of one that names a module, or something in it after a colon. A plain word like `publisher` may mean anything, so it does not."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        found = _MODULE.fullmatch(node.value)
        if node.value in names & MOVED or (found and _is_moved(found[1]) and found[1] in names):
            yield _edit(node, node.value, f"{NAMESPACE}.{node.value}", after_quote=True)


def _edit(node: Any, before: str, after: str, *, after_quote: bool = False) -> _Edit:
    return _Edit(node.lineno, node.col_offset + after_quote, before, after)


def _modules(paths: Iterator[str]) -> Iterator[str]:
    """Yield the dotted names of modules and folders with at least one dot."""
    for path in map(Path, paths):
        folders = [parent for parent in path.parents if parent.name and parent.parent.name]
        for each in [path.with_suffix(""), *folders] if path.suffix == ".py" else folders:
            yield ".".join(each.parts)


def _is_moved(name: str) -> bool:
    return name.partition(".")[0] in MOVED


def _named(name: str) -> str:
    return f"{NAMESPACE}.{name}" if _is_moved(name) else name


def _place(path: str) -> str:
    return f"{NAMESPACE}/{path}" if Path(path).parts[0] in MOVED else path
