"""The job's ownership of the outbox through a PgBouncer in session mode: one run writes, and a takeover ends the former one's backend."""

from collections.abc import Callable
from uuid import uuid4

import psycopg
import pytest
from pydantic import SecretStr

from db.connection import connect
from service.errors import FencedError
from service.settings import JobSettings, PostgresSettings
from spark_job.ledger import ownership

JOB = JobSettings(heartbeat_s=0.2, owner_timeout_s=60)


def test_one_run_writes_and_a_takeover_ends_the_former_ones_backend(
    database: str, through_pgbouncer: Callable[[str, str], str]
) -> None:
    settings = PostgresSettings(dsn=SecretStr(through_pgbouncer(database, "session")))
    former, later = uuid4(), uuid4()
    with (
        connect(settings, "spark-job", autocommit=True) as first,
        connect(settings, "spark-job", autocommit=True) as second,
    ):
        with first.transaction():
            ownership.take_over(first, former, JOB, force=False)
        with pytest.raises(FencedError, match="--take-over"), second.transaction():
            ownership.take_over(second, later, JOB, force=False)
        # What a stopped job would hold: its successor must not wait for it.
        first.execute("BEGIN")
        ownership.lock_and_check(first, former)
        with second.transaction():
            ownership.take_over(second, later, JOB, force=True)
            assert ownership.read_owner(second).run_id == later
        with pytest.raises(psycopg.Error):
            first.execute("SELECT 1")
