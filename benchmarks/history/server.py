"""A Postgres of its own for the week, on a directory that may outlive the run."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from devstack.postgres import Postgres
from devstack.processes.account import reachable_folder, server_account

DATABASE = "outbox"
FOR_LOADING = {
    "fsync": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "autovacuum": "off",
    "shared_buffers": "2GB",
    "maintenance_work_mem": "512MB",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "1h",
}
"""A crash of the machine while it loads costs the load, nothing else."""


@contextmanager
def serving(directory: Path, settings: dict[str, str]) -> Iterator[Postgres]:
    """Serve the directory with Postgres' defaults and these settings; the data stays."""
    with Postgres(directory, settings=settings) as postgres:
        yield postgres
        # A server that takes long to stop would be killed.
        with psycopg.connect(postgres.dsn(), autocommit=True) as connection:
            connection.execute("CHECKPOINT")
    os.sync()


def forget_cached(directory: Path) -> None:
    """Drop a stopped server's files from the machine's page cache: the next read comes from the disk."""
    for path in reachable_folder(directory / "pgdata", server_account()).rglob("*"):
        if path.is_file():
            file = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(file)
