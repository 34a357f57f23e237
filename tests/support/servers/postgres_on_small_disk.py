"""A Postgres whose databases lie on a disk of a few megabytes that can be filled and emptied."""

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from devstack.postgres import Postgres
from devstack.processes.account import Account, reachable_folder, server_account
from devstack.processes.process import ServerProcess

_LAUNCHER = Path(__file__).with_name("small_disk.py")
_TABLESPACE = sql.Identifier("small")
_FILLER = sql.Identifier("filler")


class PostgresOnSmallDisk(Postgres):
    """A server with one small tablespace, which is lost when the server stops. `create` puts databases there."""

    def __init__(self, data_dir: Path, megabytes: int) -> None:
        super().__init__(data_dir, fast=True)
        self._megabytes = megabytes

    def start(self) -> None:
        """Start with an empty small disk."""
        super().start()
        place = sql.Literal(str(self._disk(server_account())))
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE TABLESPACE {} LOCATION {}").format(_TABLESPACE, place))

    def create(self, name: str) -> str:
        """Create a database on the small disk and return its DSN."""
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            statement = sql.SQL("CREATE DATABASE {} TABLESPACE {}")
            connection.execute(statement.format(sql.Identifier(name), _TABLESPACE))
        return self.dsn(name)

    def fill(self) -> None:
        """Take all of the small disk, to the last block."""
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            # CREATE DATABASE leaves holes where its copies of blocks will be written; without room for them the server could not even
            # drop the filler.
            connection.execute("CHECKPOINT")
            table = sql.SQL("CREATE TABLE {} (block bytea STORAGE PLAIN) TABLESPACE {}")
            connection.execute(table.format(_FILLER, _TABLESPACE))
            for blocks in (100, 10, 1):
                _insert_while_there_is_room(connection, blocks)

    def make_room(self) -> None:
        """Give back what `fill` has taken."""
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            connection.execute(sql.SQL("DROP TABLE {}").format(_FILLER))

    def _launch_server(self, command: list[str], account: Account | None) -> ServerProcess:
        user, group = (account.uid, account.gid) if account else (os.getuid(), os.getgid())
        prefix = [sys.executable, "-I", "-S", str(_LAUNCHER)]
        where = [str(self._megabytes), str(self._disk(account)), f"{user}:{group}"]
        # As ourselves: root mounts and then becomes the account.
        return super()._launch_server([*prefix, *where, *command], None)

    def _disk(self, account: Account | None) -> Path:
        return reachable_folder(self.data_dir / "disk", account)

    def _delete_data(self) -> None:
        shutil.rmtree(self._disk(server_account()), ignore_errors=True)
        super()._delete_data()


def _insert_while_there_is_room(connection: psycopg.Connection[Any], blocks: int) -> None:
    insert = sql.SQL(
        "INSERT INTO {} SELECT decode(repeat('00', 8000), 'hex') FROM generate_series(1, %s)"
    ).format(_FILLER)
    while True:
        try:
            connection.execute(insert, (blocks,))
        except psycopg.errors.DiskFull:
            return
