"""A file of named queries gives each its text, and one that is wrong is refused with the reason."""

from pathlib import Path

import pytest

from db import statements
from db.statements import Queries

FILE = """\
-- Leases on lanes.

-- name: renew
-- Only by its holder.
UPDATE lease
SET until = %(until)s
-- The token tells.
WHERE token = %(token)s

-- name: all
SELECT * FROM lease
"""


def test_each_query_has_its_comments_and_its_text() -> None:
    found = Queries("leases.sql", FILE)
    assert list(found) == ["renew", "all"]
    assert found["renew"].splitlines() == FILE.splitlines()[3:8]
    assert found["all"] == "SELECT * FROM lease"


def test_an_unknown_name_is_refused_with_the_nearest_one() -> None:
    found = Queries("leases.sql", FILE)
    with pytest.raises(KeyError, match=r"leases\.sql has no query renw; the nearest is renew"):
        found["renw"]
    with pytest.raises(KeyError, match=r"leases\.sql has no query zzz'"):
        found["zzz"]
    assert "renw" not in found


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "has no query"),
        ("-- Leases.\n", "has no query"),
        ("SELECT 1\n", "SQL before the first"),
        ("SELECT 1\n-- name: one\nSELECT 1\n", "SQL before the first"),
        ("-- name: one\nSELECT 1\n-- name: two\n", "query two is empty"),
        ("-- name: one\n-- only a comment\n\n-- name: two\nSELECT 2\n", "query one is empty"),
        ("-- name: one\nSELECT 1\n-- name: one\nSELECT 2\n", "two queries one"),
        ("-- name: one\nSELECT 1\n--name: two\nSELECT 2\n", "line 3: the header"),
        ("-- name: one\nSELECT 1\n-- Name: two\nSELECT 2\n", "line 3: the header"),
        ("-- name: one\nSELECT 1\n -- name: two\nSELECT 2\n", "line 3: the header"),
        ("-- name: one two\nSELECT 1\n", "line 1: the header"),
        ("-- name:\nSELECT 1\n", "line 1: the header"),
    ],
)
def test_a_file_that_is_no_list_of_queries_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=f"wrong.sql.*{why}"):
        Queries("wrong.sql", text)


def test_a_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "some_package" / "sql"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").touch()
    (folder / "leases.sql").write_text(FILE, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    first = statements.queries("some_package", "leases")
    (folder / "leases.sql").unlink()
    assert statements.queries("some_package", "leases") is first
    with pytest.raises(FileNotFoundError, match=r"processes\.sql"):
        statements.queries("some_package", "processes")
