"""SQL is kept in `.sql` files by subject, beside the code that runs it: named queries, with bound parameters only.

    -- name: renew
    -- A comment on the query, which is sent to Postgres with it.
    UPDATE outbox.lane SET ...

A file may begin with comments about its subject. Use at module level: `_LEASES = queries("publisher", "leases")`, then
`_LEASES["renew"]`.
"""

import re
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import LiteralString, NoReturn

_HEADER = re.compile(r"-- name: ([a-z][a-z0-9_]*)")
_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")
_LIKE_A_HEADER = re.compile(r"\s*--\s*name\s*:", re.IGNORECASE)


class Queries(dict[str, LiteralString]):
    """The queries of one file by name. They are part of the program, so they have the literal type that psycopg requires."""

    def __init__(self, path: str, text: LiteralString) -> None:
        """`path`: the file's name in messages. Raises ValueError for a file that is not a list of named queries."""
        super().__init__()
        self._path = path
        name: str | None = None
        body: list[LiteralString] = []
        for number, line in enumerate(text.splitlines(), 1):
            if header := _HEADER.fullmatch(line):
                self._add(name, body)
                name, body = header[1], []
            elif _LIKE_A_HEADER.match(line):
                raise ValueError(
                    f"{path}, line {number}: the header of a query is `-- name: ` and a name in lower case: {line!r}"
                )
            else:
                body.append(line)
        self._add(name, body)
        if not self:
            raise ValueError(f"{path} has no query: each begins with `-- name: ` and its name")

    def _add(self, name: str | None, body: list[LiteralString]) -> None:
        is_empty = all(not line.strip() or line.lstrip().startswith("--") for line in body)
        if name is None:
            if not is_empty:
                raise ValueError(f"{self._path}: SQL before the first `-- name: `")
            return
        if is_empty:
            raise ValueError(f"{self._path}: query {name} is empty")
        if name in self:
            raise ValueError(f"{self._path}: there are two queries {name}")
        self[name] = "\n".join(body).strip()

    def __missing__(self, name: str) -> NoReturn:
        near = get_close_matches(name, self, 1)
        hint = f"; the nearest is {near[0]}" if near else ""
        raise KeyError(f"{self._path} has no query {name}{hint}")


@cache
def queries(package: str, subject: str) -> Queries:
    """Return the queries of `<package>/sql/<subject>.sql`. Raises FileNotFoundError, ValueError."""
    return Queries(f"{package.replace('.', '/')}/sql/{subject}.sql", _text(package, subject))


@cache
def migration_script(name: str) -> LiteralString:
    """Return the text of `db/migrations/sql/<name>.sql`, a script that runs as a whole. Raises FileNotFoundError."""
    return _text("db.migrations", name)


def quoted(name: str) -> str:
    """Quote the name of a role or a database, which may be any text, for a statement that a person will run."""
    return name if _PLAIN.fullmatch(name) else '"' + name.replace('"', '""') + '"'


def _text(package: str, name: str) -> LiteralString:
    text: LiteralString = files(package).joinpath("sql", f"{name}.sql").read_text("utf-8")
    return text
