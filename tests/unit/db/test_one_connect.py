"""Every connection to Postgres is made by `db.connection.connect`, which sets and checks what a login may have set otherwise."""

import ast
from pathlib import Path

from tests.support.paths import ROOT

PRODUCT = ("publisher", "spark_job", "service", "db", "contract")
_DRIVERS = ("psycopg", "psycopg2", "psycopg_pool", "asyncpg", "pg8000", "sqlalchemy")
_MAKERS = ("connect", "create_engine", "ConnectionPool", "AsyncConnectionPool")


def _made(path: Path) -> list[str]:
    """Return the calls of a module that connect to Postgres by themselves, whatever it calls the driver."""
    tree = ast.parse(path.read_text("utf-8"))
    imported: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {
                each.asname or each.name.split(".")[0]: each.name
                for each in node.names
                if each.name.split(".")[0] in _DRIVERS
            }
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in _DRIVERS:
            imported |= {each.asname or each.name: each.name for each in node.names}
    calls = [ast.unparse(node.func).split(".") for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [
        ".".join(call)
        for call in calls
        if call[0] in imported and (call[-1] in _MAKERS or imported[call[0]] in _MAKERS)
    ]


def test_the_product_connects_in_one_place() -> None:
    modules = [path for folder in PRODUCT for path in (ROOT / folder).rglob("*.py")]
    found = {str(path.relative_to(ROOT)): made for path in modules if (made := _made(path))}
    assert found == {
        "db/connection.py": ["psycopg.connect", "psycopg.connect"],
        "db/migrations/env.py": ["create_engine"],  # of a connection that `connect` made
    }
