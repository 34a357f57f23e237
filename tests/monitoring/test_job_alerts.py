"""Each alert about the job fires on its fault and ends after it; and every query of the dashboard has data while both services work."""

import re
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from devstack.kafka import KafkaServer
from devstack.postgres import Postgres
from tests.support.monitoring.prometheus import Prometheus, expressions
from tests.support.monitoring.runbook import ask, follow
from tests.support.monitoring.watched import watched_pipeline
from tests.support.pipeline.options import Options
from tests.support.pipeline.pipeline import Pipeline

WITHOUT_FAULT = ("OutboxPostgresDisk",)
"""Alerts that no test here makes fire: the commands of their sections run while nothing is wrong."""

pytestmark = [pytest.mark.monitoring, pytest.mark.timeout(1_500)]


def test_the_alerts_about_a_job(
    own_postgres: Postgres, kafka: KafkaServer, topic_prefix: str, tmp_path: Path, alerting: Any
) -> None:
    options: Options = {
        "metrics": {"progress_s": 3},
        "restart": {"delay_s": 0.2, "max_delay_s": 0.5},
        "job": {"max_backlog_events": 500, "max_events_per_batch": 1_000},
    }
    with watched_pipeline(own_postgres, kafka, topic_prefix, tmp_path, options) as watched:
        pipeline, prometheus, addresses = watched.pipeline, watched.prometheus, watched.addresses
        job, publisher = pipeline.job, pipeline.publisher
        alert = partial(
            alerting, prometheus, variables=pipeline.variables, addresses=addresses, dsn=pipeline.dsn
        )
        publisher.start()
        with psycopg.connect(pipeline.dsn) as holder:
            # A job that cannot take the outbox over is up, and owns nothing.
            holder.execute("SELECT outbox.lock_writer()")
            with alert("OutboxJobDown"):
                job.start()
            with alert("OutboxNoOwner"):
                holder.rollback()
        watched.wait_until_ready()

        with ExitStack() as load:
            load.enter_context(pipeline.load(31, sessions_per_second=20))
            with alert("OutboxDeadLetters") as printed:
                assert "open" in printed["spark-job dead-letters list"]
                pipeline.wait_until(
                    lambda: not _without_data(prometheus),
                    "data for every query of the dashboard",
                    alive=(job, publisher),
                )
                load.close()
        pipeline.wait_for_input(pipeline.expectation())

        pipeline.feed(32, sessions=20)
        with ExitStack() as lock:
            lock.enter_context(pipeline.held_up_batch())
            with alert("OutboxBatchesHang"), alert("OutboxNotReady", "spark-job"):
                lock.close()

        publisher.kill()
        pipeline.feed(33, sessions=300)
        with alert("OutboxHeldBack") as printed:
            assert "held back" in printed["spark-job status"]
            publisher.start()
        pipeline.wait_for_input(pipeline.expectation())

        own_postgres.stop()
        # Without input a job waits for Postgres; with input, every attempt to commit it fails.
        pipeline.feed(34, sessions=20)
        with (
            alert("OutboxRestarts", "UnavailableError", dsn=None),
            alert("OutboxPostgresUnreachable", "spark-job", dsn=None),
        ):
            own_postgres.start()
            pipeline.connect()
        watched.wait_until_ready()
        pipeline.wait_for_input(pipeline.expectation())
        assert_lines_lead_to_rows(pipeline)
        for name in WITHOUT_FAULT:
            follow(name, pipeline.variables, addresses)
            ask(name, pipeline.dsn)


def assert_lines_lead_to_rows(pipeline: Pipeline) -> None:
    """What the logs say of batches and deliveries are the keys of their rows."""
    committed = re.findall(
        r"batch_committed\s+batch=(\d+) .*?run=([0-9a-f-]+) generation=(\d+)", pipeline.job.log()
    )
    batches = pipeline.ask("SELECT batch_id::text, run_id::text, generation::text FROM outbox.batch")
    assert committed
    assert set(committed) <= set(batches)
    delivered = re.findall(r"delivered\s+batch=.*?deliveries=\[(.*?)\]", pipeline.publisher.log())
    named = [re.split(r"[/-]", each.strip("'")) for line in delivered for each in line.split(", ")]
    assert named
    known = set(pipeline.ask("SELECT epoch::text, lane::text, seq::text FROM outbox.delivery"))
    for epoch, lane, *seqs in named:
        assert {(epoch, lane, seq) for seq in seqs} <= known


def _without_data(prometheus: Prometheus) -> list[str]:
    """Panels of the dashboard with a query that finds nothing. Each must parse."""
    return [
        title
        for title, queries in expressions().items()
        if not all(prometheus.query(each) for each in queries)
    ]
