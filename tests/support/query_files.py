"""Every file of named queries in the repository, found by itself."""

from pathlib import Path
from typing import NamedTuple

from db.statements import Queries, queries

ROOT = Path(__file__).parents[2]
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
