"""An outbox with partitions full of old batches, made in a moment; retention as a process."""

import json
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
from psycopg.conninfo import make_conninfo
from pydantic import SecretStr

from service.lifecycle.fault_points import Fault, FaultPlan
from service.settings import PostgresSettings, PublisherSettings, RetentionSettings, Settings
from tests.support.outbox.batches import OFFSETS
from tests.support.processes.environment import without_settings

PARTITION = 10_000
DAY_S = 86_400


def add_batches(dsn: str, to_batch: int, *, every: int = 1, age_s: int = 10 * DAY_S) -> None:
    """Commit empty batches up to and including `to_batch`, all of them old; one in `every`, where no publisher looks."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "SELECT outbox.ensure_partitions(max(batch_id) + 1, %s) FROM outbox.batch HAVING max(batch_id) < %s",
            (to_batch, to_batch),
        )
        connection.execute(
            "INSERT INTO outbox.batch (batch_id, kind, generation, spark_batch, run_id, start_offsets, end_offsets, open_state,"
            " transform_fingerprint)"
            " SELECT n, 'stream', 1, n, %(run)s, %(o)s, %(o)s, '{}', 'test'"
            " FROM generate_series((SELECT coalesce(max(batch_id), 0) + 1 FROM outbox.batch), %(to)s) n"
            " WHERE n %% %(every)s = 0 OR n = %(to)s",
            {"run": uuid4(), "o": OFFSETS, "to": to_batch, "every": every},
        )
        connection.execute(
            "UPDATE outbox.batch SET created_at = created_at - make_interval(secs => %s)", (age_s,)
        )
        connection.execute("NOTIFY outbox_batch")


def make_partitions(connection: psycopg.Connection[Any], last_batch: int) -> None:
    """Make the partitions of all batches up to `last_batch`, of which the ledger has none. `connection`: of the owner, autocommit."""
    for first in range(1, last_batch, 1_000_000):
        with connection.transaction():
            if first > 1:
                # They are made for the batches after the newest one; this one needs no generation, and goes at once.
                connection.execute("SET LOCAL session_replication_role = replica")
                connection.execute(
                    "INSERT INTO outbox.batch (batch_id, kind, generation, run_id, transform_fingerprint)"
                    " VALUES (%s, 'retry', 1, gen_random_uuid(), 'test')",
                    (first - 1,),
                )
            connection.execute(
                "SELECT outbox.ensure_partitions(%s, %s)", (first, min(first + 999_999, last_batch))
            )
            connection.execute("DELETE FROM outbox.batch")


def deliver_all(dsn: str, to_batch: int, lanes: int = 2) -> None:
    """Write what a publisher's mirror says once every lane is through `to_batch`."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO outbox.lane (epoch, lane, seq, cursor_batch, cursor_commit_id) SELECT 1, n, 1, %s, gen_random_uuid()"
            " FROM generate_series(0, %s) n ON CONFLICT ON CONSTRAINT lane_pkey DO UPDATE SET cursor_batch = excluded.cursor_batch,"
            " cursor_key = NULL, cursor_commit_id = excluded.cursor_commit_id",
            (to_batch, lanes - 1),
        )


def partitions(dsn: str) -> list[str]:
    """Numbers of the tables that look like partitions, a `?` behind one whose detaching is not over, a `-` behind a detached one."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        rows = connection.execute(
            "SELECT right(c.relname, 2)::integer, i.inhdetachpending FROM pg_class c LEFT JOIN pg_inherits i ON i.inhrelid = c.oid"
            " WHERE c.relnamespace = 'outbox'::regnamespace AND c.relkind = 'r' AND c.relname LIKE 'session_output_p%' ORDER BY 1"
        ).fetchall()
    return [f"{number}{'-' if pending is None else '?' if pending else ''}" for number, pending in rows]


def retention_settings(outbox_dsn: str, **retention: Any) -> Settings:
    """Settings of retention alone: what is a day old goes. Without a role in the DSN, retention's own works."""
    values: dict[str, Any] = {"keep_s": DAY_S, "ahead_batches": 1, "lock_timeout_s": 60} | retention
    if "role" not in outbox_dsn:
        values.setdefault("dsn", make_conninfo(outbox_dsn, options="-c role=outbox_retention"))
    return Settings.model_construct(
        postgres=PostgresSettings(dsn=SecretStr(outbox_dsn)),
        retention=RetentionSettings(**values),
        publisher=PublisherSettings(),
    )


class Command:
    """`publisher retention ...` as a process. `plan`: the faults that it meets."""

    def __init__(self, settings: Settings, folder: Path, most_file_bytes: int | None = None) -> None:
        """`most_file_bytes`: no file that it writes can be larger."""
        self._most_file_bytes = most_file_bytes
        self._environment = without_settings()
        self._environment["OUTBOX_POSTGRES__DSN"] = settings.postgres.dsn.get_secret_value()
        for name, value in settings.retention.model_dump(exclude_none=True).items():
            if isinstance(value, SecretStr):
                value = value.get_secret_value()
            text = value if isinstance(value, str) else json.dumps(value)
            self._environment[f"OUTBOX_RETENTION__{name.upper()}"] = text
        self._plan = FaultPlan(folder / "retention-faults.json")

    def start(self, *arguments: str, fault: Fault | None = None) -> subprocess.Popen[str]:
        """Start it."""
        environment = dict(self._environment)
        if fault is not None:
            self._plan.write(fault)
            environment["OUTBOX_TESTING__FAULT_FILE"] = str(self._plan.file)
        return subprocess.Popen(
            [sys.executable, "-m", "publisher", "retention", *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if "--json" not in arguments else subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            text=True,
            preexec_fn=self._limit if self._most_file_bytes else None,
        )

    def _limit(self) -> None:
        # Else the kernel ends the process instead of failing the write.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        limit = self._most_file_bytes or 0
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    def run(self, *arguments: str, fault: Fault | None = None) -> tuple[int, str]:
        """Run it; return exit code and output."""
        with self.start(*arguments, fault=fault) as process:
            output, _ = process.communicate(timeout=120)
            return process.returncode, output
