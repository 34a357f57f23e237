"""What the console's pages cost on an outbox of ten million sessions: medians over HTTP, each page asked for again and again.

    python -m benchmarks.console [--sessions 10000000] [--keep DIR | --use DIR] [--rounds 9]

The same synthetic week as `benchmarks.audit_views` loads; --keep and --use as there. Nobody delivers and no Kafka is there: what a page
reads of Kafka is left out. `first_ms` is the first time after Postgres has started, with nothing in its memory. Baseline of the same run:
reading all rows once. Prints one JSON line last.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from urllib.parse import urlencode

import psycopg
from pydantic import SecretStr

from benchmarks.audit_views import fill, full_read_s
from benchmarks.history.load import bring_up_to_now
from benchmarks.history.server import DATABASE, serving
from benchmarks.support.report import screen
from db.migrate import upgrade
from db.statements import queries
from publisher.console import server
from publisher.console.pages import PAGES
from service.settings import ConsoleSettings, PostgresSettings, Settings

_QUESTIONS = queries("benchmarks.history", "questions")

_TIMEOUT_MS = 60_000


def addresses(connection: psycopg.Connection[tuple[object, ...]]) -> dict[str, str]:
    """Return the pages to ask for: every one of the console, and what the search and the lists lead to."""
    ((key, batch_id, outbox_id, letter_id),) = connection.execute(_QUESTIONS["console_subjects"]).fetchall()
    place = str(outbox_id).rpartition("/")[0]
    found = {
        page.path: page.path
        for page in PAGES
        if page.path not in ("/batch", "/letter", "/session", "/search")
    }
    return found | {
        "/batches, in the middle": f"/batches?before={batch_id}",
        "/batch": f"/batch?id={batch_id}",
        "/letter": f"/letter?id={letter_id}",
        "/letters, one reason": "/letters?reason=transform_failed",
        "/session": f"/session?{urlencode({'key': key})}",
        "search by key": f"/search?{urlencode({'q': key})}",
        "search by outbox-id": f"/search?{urlencode({'q': outbox_id})}",
        "search by position": f"/search?{urlencode({'q': place})}",
    }


def took_ms(port: int, path: str) -> float:
    """Return the milliseconds of a page, read to its end. A search that finds its session is answered by the way there."""
    connection = HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        began = time.perf_counter()
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        took = (time.perf_counter() - began) * 1000
        if answer.status != (303 if path.startswith("/search") else 200):
            raise SystemExit(f"{path} was answered with {answer.status}")
        return took
    finally:
        connection.close()


def measure(directory: Path, rounds: int) -> dict[str, object]:
    """Ask for every page, first cold, then in turn."""
    load_before = os.getloadavg()[0]
    with serving(directory, {}) as postgres:
        dsn = postgres.dsn(DATABASE)
        settings = Settings.model_construct(
            postgres=PostgresSettings(dsn=SecretStr(dsn)),
            console=ConsoleSettings(statement_timeout_ms=_TIMEOUT_MS),
        )
        with psycopg.connect(dsn, autocommit=True) as connection, server.serving(settings) as port:
            pages = addresses(connection)
            first = {name: took_ms(port, path) for name, path in pages.items()}
            times: dict[str, list[float]] = {name: [] for name in pages}
            for _ in range(rounds):
                for name, path in pages.items():
                    times[name].append(took_ms(port, path))
            baseline_s = full_read_s(connection)
            ((_, sessions, batches, size),) = connection.execute(_QUESTIONS["surroundings"]).fetchall()
    found = {
        name: {
            "median_ms": round(median(times[name]), 1),
            "worst_ms": round(max(times[name]), 1),
            "first_ms": round(first[name], 1),
        }
        for name in pages
    }
    for name, each in found.items():
        screen.print(
            f"{name}: {each['median_ms']} ms, at worst {each['worst_ms']}, first {each['first_ms']}",
            markup=False,
        )
    return {
        "benchmark": "console",
        "sessions": sessions,
        "batches": batches,
        "database_gb": round(size / 1e9, 1),
        "rounds": rounds,
        "full_read_s": round(baseline_s, 2),
        "load": [round(load_before, 2), round(os.getloadavg()[0], 2)],
        "pages": found,
    }


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
    parser.add_argument("--rounds", type=int, default=9, help="times that each page is asked for (default 9)")
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--keep", type=Path, metavar="DIR", help="load into this directory and leave it")
    place.add_argument("--use", type=Path, metavar="DIR", help="measure on a directory that --keep left")
    options = parser.parse_args()
    with _directory(options) as directory:
        with serving(directory, {}) as postgres:
            upgrade(postgres.dsn(DATABASE))
            with psycopg.connect(postgres.dsn(DATABASE), autocommit=True) as connection:
                bring_up_to_now(connection)
        result = measure(directory, options.rounds)
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
