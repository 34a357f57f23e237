"""SQL kept in `.sql` files beside the code that runs it, one statement each, bound parameters only."""

from functools import cache
from importlib.resources import files
from typing import LiteralString


@cache
def statement(package: str, name: str) -> LiteralString:
    """Return the text of `<package>/sql/<name>.sql`.

    The file is part of the program, hence the literal type that psycopg asks for. Raises FileNotFoundError.
    """
    text: LiteralString = files(package).joinpath("sql", f"{name}.sql").read_text("utf-8")
    return text
