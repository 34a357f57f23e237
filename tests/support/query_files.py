"""Every file of named queries in the repository, found by itself."""

import re
from pathlib import Path
from typing import LiteralString, NamedTuple

from db.statements import Queries, queries

ROOT = Path(__file__).parents[2]
_COMMENT = re.compile(r"--[^\n]*")
_PLACEHOLDER = re.compile(r"%\((\w+)\)s|%%|%")
FOLDERS = ("publisher", "spark_job", "db", "examples", "benchmarks")


class QueryFile(NamedTuple):
    """`<package>/sql/<subject>.sql`."""

    package: str
    subject: str

    def load(self) -> Queries:
        """Return its queries, as the code gets them."""
        return queries(self.package, self.subject)


def query_files() -> list[QueryFile]:
    """Return all of them. A migration's file is no list of queries."""
    paths = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("sql/*.sql"))
    packages = {path: ".".join(path.parent.parent.relative_to(ROOT).parts) for path in paths}
    return [QueryFile(package, path.stem) for path, package in packages.items() if package != "db.migrations"]


def kind(query: str) -> str:
    """Return the first word of a statement, which says what it is."""
    return _COMMENT.sub("", query).split()[0]


def numbered(query: LiteralString) -> tuple[str, int]:
    """Return the query as PREPARE takes it, with `$1` for the first of its names and so on, and how many they are."""
    if "%(" not in query:
        return query, 0  # psycopg leaves a query without parameters as it is
    names: list[str] = []

    def number(found: re.Match[str]) -> str:
        if found[0] == "%%":
            return "%"
        assert found[1] is not None, f"a % that is neither a placeholder nor doubled: {query}"
        if found[1] not in names:
            names.append(found[1])
        return f"${names.index(found[1]) + 1}"

    return _PLACEHOLDER.sub(number, query), len(names)
