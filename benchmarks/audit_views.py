"""What the questions of docs/audit.md cost on an outbox of ten million sessions, and `publisher audit` and `publisher status` on it.

    python -m benchmarks.audit_views [--sessions 10000000] [--plans docs/performance/audit-plans.txt] [--only NAME]

A synthetic week is loaded into a Postgres on disk (`benchmarks/history/`); 18 GB for ten million sessions. Baseline of the same run:
reading all rows once, which any question without an index has to. Prints what it measures, and writes the plans where asked. Measure alone
on the machine.
"""

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import psycopg
import typer

from benchmarks.history import plans
from benchmarks.history import queries as page_queries
from benchmarks.history.services import audit_alone, looks
from benchmarks.history.week import BATCH_SESSIONS, CLICKS, SESSIONS, load
from benchmarks.support.rounds import screen
from db.migrate import upgrade
from db.statements import queries
from devstack.postgres import Postgres
from devstack.processes.account import reachable_folder, server_account
from service.commands.progress import progress_bar

_QUESTIONS = queries("benchmarks.history", "questions")

_AUDIT_PAGE = Path(__file__).parent.parent / "docs" / "audit.md"
_DATABASE = "outbox"
_FOR_LOADING = {
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
_TIMEOUT_S = 900
_WORKERS = 2


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


def fill(directory: Path, sessions: int) -> str:
    """Load the week into a new database on this directory; return a session key of it."""
    batches = max(10, sessions // BATCH_SESSIONS)
    with serving(directory, _FOR_LOADING) as postgres, progress_bar() as progress:
        dsn = postgres.create_database(_DATABASE)
        upgrade(dsn)
        task = progress.add_task("batches loaded", total=batches)
        load(dsn, batches, _WORKERS, lambda done: progress.advance(task, done))
        with psycopg.connect(dsn) as connection:
            ((key,),) = connection.execute(_QUESTIONS["session_key"]).fetchall()
    return str(key)


def full_read_s(connection: psycopg.Connection[Any]) -> float:
    """Seconds of reading all rows once, by as many processes as Postgres takes."""
    with connection.transaction():
        connection.execute("SET LOCAL enable_indexonlyscan = off")
        connection.execute("SET LOCAL enable_indexscan = off")
        began = time.perf_counter()
        connection.execute("SELECT count(*), sum(cardinality(topics)) FROM outbox.session_output").fetchall()
        return time.perf_counter() - began


def cold_s(directory: Path, query: page_queries.Query) -> float | None:
    """Seconds of a query as the first one after a start, with nothing in any cache."""
    forget_cached(directory)
    with (
        serving(directory, {}) as postgres,
        psycopg.connect(postgres.dsn(_DATABASE), autocommit=True) as connection,
    ):
        result = page_queries.run(connection, query, _TIMEOUT_S)
    return None if result is None else result[1]


def measure(directory: Path, asked: list[page_queries.Query], report: Path | None, *, quick: bool) -> None:
    """Measure everything; write the plans where asked. `quick`: without the audit."""
    load_before = os.getloadavg()[0]
    found = [page_queries.Measured(query) for query in asked]
    for one in found:
        one.cold_s = cold_s(directory, one.query)
    with serving(directory, {}) as postgres:
        dsn = postgres.dsn(_DATABASE)
        with psycopg.connect(dsn, autocommit=True) as connection:
            # The first fills the machine's cache.
            _, baseline = (full_read_s(connection) for _ in range(2))
            screen.print(f"all rows once: {baseline:.1f} s")
            for one in found:
                page_queries.measure_warm(connection, one, _TIMEOUT_S)
                screen.print(plans.row(one, baseline), markup=False)
            services: dict[str, Any] = looks(connection)
            if not quick:
                services["publisher audit"] = audit_alone(dsn)
            screen.print(services)
            around = _surroundings(connection, load_before)
    if report is not None:
        report.write_text(plans.written(found, baseline, services, around), "utf-8")


def _surroundings(connection: psycopg.Connection[Any], load_before: float) -> plans.Surroundings:
    ((version, sessions, batches, size),) = connection.execute(_QUESTIONS["surroundings"]).fetchall()
    return plans.Surroundings(version, sessions, batches, size / 1e9, (load_before, os.getloadavg()[0]))


def main(
    sessions: Annotated[int, typer.Option(min=1, help="About how many.")] = 10_000_000,
    plans_file: Annotated[
        Path | None, typer.Option("--plans", help="Also write the plans and times to this file.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="Only this query, and no audit; may be repeated.")
    ] = None,
) -> None:
    """Load, measure and print."""
    with tempfile.TemporaryDirectory(prefix="outbox-week-", dir="/var/tmp") as folder:
        directory = Path(folder) / "postgres"
        key = fill(directory, sessions)
        stand_ins = {"sess_000197": key, "shop.clicks": CLICKS, "shop.sessions": SESSIONS}
        asked = [
            query
            for query in page_queries.queries_of(_AUDIT_PAGE, stand_ins)
            if only is None or query.name in only
        ]
        measure(directory, asked, plans_file, quick=only is not None)


if __name__ == "__main__":
    typer.run(main)
