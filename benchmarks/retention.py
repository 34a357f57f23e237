"""How long does anybody wait while retention drops partitions? A writer and a reader, timed; plain DETACH and nothing at all as baselines.

    python -m benchmarks.retention [--partitions 20] [--seconds 20]

One writer commits batches as the sink does (advisory lock, binary COPY, ledger row), one reader reads as a lane does, and a report holds a
transaction on the outputs for two seconds, again and again: what makes a plain DETACH hurt. Prints a table.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any
from uuid import uuid4

import psycopg
import typer
from pydantic import SecretStr

from benchmarks.support.servers import started_servers
from db.connection import snapshot
from db.migrate import upgrade
from db.statements import queries
from publisher.retention.drop import drop_partition
from publisher.retention.retention import run_once
from service.settings import PostgresSettings, PublisherSettings, RetentionSettings, Settings
from tests.support.outbox.batches import Outbox, simple
from tests.support.outbox.old_outputs import add_batches, deliver_all

_ROWS = queries("publisher", "rows")

_REPORT_S = 2.0
_KEYS = 20


class Timed(threading.Thread):
    """Repeats a step on a connection of its own; remembers how long each took, in milliseconds."""

    def __init__(
        self, dsn: str, step: Callable[[psycopg.Connection[Any], int], None], pause_s: float
    ) -> None:
        super().__init__()
        self._dsn, self._step, self._pause_s = dsn, step, pause_s
        self._stop_asked = threading.Event()
        self.took_ms: list[float] = []

    def run(self) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            while not self._stop_asked.wait(self._pause_s):
                began = time.perf_counter()
                self._step(connection, len(self.took_ms))
                self.took_ms.append((time.perf_counter() - began) * 1000)

    def stop(self) -> None:
        self._stop_asked.set()
        self.join()

    def figures(self) -> str:
        """Median, p99 and maximum, in milliseconds."""
        ordered = sorted(self.took_ms)
        if not ordered:
            raise RuntimeError("nothing was measured: see the error of the thread above")
        found = ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)], ordered[-1]
        return " / ".join(f"{ms:,.0f}" for ms in found)


def write(connection: psycopg.Connection[Any], _: int) -> None:
    """One batch, in a transaction of the sink's shape."""
    with connection.transaction():
        connection.execute("SELECT outbox.lock_writer()")
        ((batch_id,),) = connection.execute("SELECT max(batch_id) + 1 FROM outbox.batch").fetchall()
        with connection.cursor().copy(
            "COPY outbox.session_output (session_key, batch_id, lane, revision, session_topic_ids, session_partitions, session_starts,"
            ' session_ends, session_started_ms, session_ended_ms, session_events, session_outputs, topics, "values") FROM STDIN'
        ) as copy:
            for n in range(_KEYS):
                arrays = ["{t}", "{0}", "{1}", "{2}", "{1}", "{2}", "{2}", "{1}", "{pages}", '{"\\\\x61"}']
                copy.write_row((f"key-{n}", batch_id, n % 2, 0, *arrays))
        connection.execute(
            "INSERT INTO outbox.batch (batch_id, kind, generation, run_id, transform_fingerprint)"
            " VALUES (%s, 'requeue', 1, %s, 'bench')",
            (batch_id, uuid4()),
        )


def read(connection: psycopg.Connection[Any], _: int) -> None:
    """What a lane reads: the newest rows, in a snapshot."""
    with snapshot(connection):
        ((newest,),) = connection.execute("SELECT max(batch_id) FROM outbox.batch").fetchall()
        connection.execute(
            _ROWS["of_lane"],
            {
                "epoch": 1,
                "lane": 0,
                "from_batch": newest - 5,
                "from_key": "",
                "to_batch": newest,
                "rows": 256,
                "bytes": 1 << 24,
                "whole": 1 << 24,
                "expansion": 4,
            },
        ).fetchall()


def report(connection: psycopg.Connection[Any], _: int) -> None:
    """Somebody's long query over all outputs."""
    with connection.transaction():
        connection.execute("SELECT count(*) FROM outbox.session_output WHERE lane = 7")
        connection.execute("SELECT pg_sleep(%s)", (_REPORT_S,))


@contextmanager
def load(dsn: str) -> Iterator[dict[str, Timed]]:
    """Run the three beside the block."""
    threads = {
        "writer": Timed(dsn, write, 0.005),
        "reader": Timed(dsn, read, 0.005),
        "report": Timed(dsn, report, 0.1),
    }
    for thread in threads.values():
        thread.start()
    try:
        time.sleep(1.0)
        for thread in threads.values():
            thread.took_ms.clear()
        yield threads
    finally:
        for thread in threads.values():
            thread.stop()


def drop(dsn: str, names: list[str]) -> None:
    """As `publisher retention` drops them."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        for name in names:
            drop_partition(connection, name, patience_s=60)


def plain(dsn: str, names: list[str]) -> None:
    """The obvious way: DETACH and DROP in a transaction."""
    with psycopg.connect(dsn) as connection:
        for name in names:
            connection.execute(f"ALTER TABLE outbox.session_output DETACH PARTITION outbox.{name}")
            connection.execute(f"DROP TABLE outbox.{name}")
            connection.commit()


def main(
    partitions: Annotated[int, typer.Option(min=1, help="Partitions that each way takes out.")] = 10,
    seconds: Annotated[float, typer.Option(min=1, help="Length of the run without any drop.")] = 15.0,
) -> None:
    """Measure."""
    with started_servers() as servers:
        dsn, last = servers.stack.create_database("outbox"), partitions * 3 * 10_000
        upgrade(dsn)
        outbox = Outbox(dsn, "pages")
        outbox.batch(simple(1, keys=3))
        add_batches(dsn, last + 1, every=1_000)
        deliver_all(dsn, last + 1)
        names = [f"session_output_p{n:08}" for n in range(partitions * 3)]
        settings = Settings.model_construct(
            postgres=PostgresSettings(dsn=SecretStr(dsn)),
            retention=RetentionSettings(keep_s=86_400, ahead_batches=20_000),
            publisher=PublisherSettings(),
        )
        print(
            "| | writer, ms p50 / p99 / max | reader, ms p50 / p99 / max | took |\n| --- | --- | --- | --- |"
        )
        ways: dict[str, Callable[[], object]] = {
            "nothing dropped": lambda: time.sleep(seconds),
            f"`publisher retention`: {partitions} partitions": lambda: drop(dsn, names[:partitions]),
            f"plain `DETACH` and `DROP`: {partitions} partitions": lambda: plain(
                dsn, names[partitions:][:partitions]
            ),
            "a whole run of retention, with pruning": lambda: run_once(settings),
        }
        for name, step in ways.items():
            with load(dsn) as threads:
                began = time.perf_counter()
                step()
                took_s = time.perf_counter() - began
            figures = [threads[who].figures() for who in ("writer", "reader")]
            print(f"| {name} | {' | '.join(figures)} | {took_s:.1f} s |")


if __name__ == "__main__":
    typer.run(main)
