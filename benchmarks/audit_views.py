"""What the questions of docs/audit.md cost on an outbox of ten million sessions, and `publisher audit` and `publisher status` on it.

    python -m benchmarks.audit_views [--sessions 10000000] [--keep DIR | --use DIR] [--plans docs/performance/audit-plans.txt] [--only NAME]

A synthetic week is loaded into a Postgres on disk: rows of 20 outputs, two lane epochs, an outage, dead letters, parked rows, replays
(`benchmarks/history/`); 18 GB for ten million sessions. `--keep` leaves it in a directory of its own; `--use` measures on that again, with
all times moved so that the newest batch is of now. Baseline of the same run: reading all rows once, which any question without an index has
to. Prints one JSON line last. Load it beside other work if you like (`nice`); measure alone on the machine.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
from rich.console import Console

from benchmarks.history import plans
from benchmarks.history import queries as page_queries
from benchmarks.history.load import bring_up_to_now, load
from benchmarks.history.rows import CLICKS, SESSIONS
from benchmarks.history.server import DATABASE, FOR_LOADING, forget_cached, serving
from benchmarks.history.services import audit_alone, looks
from benchmarks.history.week import plan
from db.migrate import upgrade
from db.statements import queries
from service.commands.progress import progress_bar

_QUESTIONS = queries("benchmarks.history", "questions")

_AUDIT_PAGE = Path(__file__).parent.parent / "docs" / "audit.md"
_TIMEOUT_S = 900
_WORKERS = 2


def fill(directory: Path, sessions: int) -> None:
    """Load the week into a new database on this directory."""
    week = plan(sessions, datetime.now(UTC))
    with (
        serving(directory, FOR_LOADING) as postgres,
        progress_bar() as progress,
    ):
        postgres.drop_database(DATABASE)
        dsn = postgres.create_database(DATABASE)
        upgrade(dsn)
        task = progress.add_task("sessions loaded", total=week.sessions)
        load(dsn, week, _WORKERS, lambda done: progress.advance(task, done))


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
        psycopg.connect(postgres.dsn(DATABASE), autocommit=True) as connection,
    ):
        result = page_queries.run(connection, query, _TIMEOUT_S)
    return None if result is None else result[1]


def measure(
    directory: Path, asked: list[page_queries.Query], report: Path | None, *, quick: bool
) -> dict[str, Any]:
    """Measure everything; write the plans where asked."""
    load_before = os.getloadavg()[0]
    say = Console(stderr=True).print
    found = [page_queries.Measured(query) for query in asked]
    for one in found:
        one.cold_s = cold_s(directory, one.query)
        say(f"{one.query.name}: cold {one.cold_s}")
    with serving(directory, {}) as postgres:
        dsn = postgres.dsn(DATABASE)
        with psycopg.connect(dsn, autocommit=True) as connection:
            # The first fills the machine's cache.
            _, baseline = (full_read_s(connection) for _ in range(2))
            say(f"all rows once: {baseline:.1f} s")
            for one in found:
                page_queries.measure_warm(connection, one, _TIMEOUT_S)
                say(f"{one.query.name}: {page_queries.as_json(one)}")
            services: dict[str, Any] = looks(connection)
            if not quick:
                services["publisher audit"] = audit_alone(dsn)._asdict()
            say(str(services))
            around = _surroundings(connection, load_before)
    if report is not None:
        report.write_text(plans.written(found, baseline, services, around), "utf-8")
    return {
        "benchmark": "audit_views",
        "sessions": around.sessions,
        "full_read_s": round(baseline, 2),
        "load": around.loads,
        "queries": {one.query.name: page_queries.as_json(one) for one in found},
        "services": services,
    }


def _surroundings(connection: psycopg.Connection[Any], load_before: float) -> plans.Surroundings:
    ((version, sessions, batches, size),) = connection.execute(_QUESTIONS["surroundings"]).fetchall()
    return plans.Surroundings(version, sessions, batches, size / 1e9, (load_before, os.getloadavg()[0]))


@contextmanager
def _directory(options: argparse.Namespace) -> Iterator[Path]:
    """Yield the directory with the loaded week."""
    if options.use is not None:
        yield options.use
        return
    directory = options.keep or Path(tempfile.mkdtemp(prefix="outbox-week-", dir="/var/tmp"))
    try:
        fill(directory, options.sessions)
        yield directory
    finally:
        if options.keep is None:
            shutil.rmtree(directory)


def main() -> None:
    """Load or take up, measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sessions", type=int, default=10_000_000, help="about how many (default 10000000)")
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--keep", type=Path, metavar="DIR", help="load into this directory and leave it")
    place.add_argument("--use", type=Path, metavar="DIR", help="measure on a directory that --keep left")
    parser.add_argument("--plans", type=Path, help="also write the plans and times to this file")
    parser.add_argument("--only", action="append", help="only this query, and no audit; may be repeated")
    options = parser.parse_args()
    with _directory(options) as directory:
        with serving(directory, {}) as postgres:
            upgrade(postgres.dsn(DATABASE))
            with psycopg.connect(postgres.dsn(DATABASE), autocommit=True) as connection:
                bring_up_to_now(connection)
                ((key,),) = connection.execute(_QUESTIONS["session_key"]).fetchall()
        stand_ins = {
            "sess_000197": key,
            "shop.clicks": CLICKS,
            "shop.sessions": SESSIONS,
        }
        asked = [
            query
            for query in page_queries.queries_of(_AUDIT_PAGE, stand_ins)
            if options.only is None or query.name in options.only
        ]
        result = measure(directory, asked, options.plans, quick=options.only is not None)
    sys.stdout.write(page_queries.dumps(result) + "\n")


if __name__ == "__main__":
    main()
