"""Postgres fails under both services while they work: whatever it was, each output arrives exactly once."""

from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from db.migrate import upgrade
from devstack.kafka import KafkaServer
from devstack.postgres import Postgres
from tests.support.faults.outages import TIMEOUT_S, go_on
from tests.support.pipeline.pipeline import Pipeline
from tests.support.servers.postgres_on_small_disk import PostgresOnSmallDisk

DATABASE = "outbox"
DISK_MEGABYTES = 128


@pytest.mark.guarantee(36)
@pytest.mark.faults
@pytest.mark.timeout(2_400)
def test_a_server_killed_during_copy_and_a_connection_cut_in_the_transaction_repeat_nothing(
    own_postgres: Postgres, kafka: KafkaServer, topic_prefix: str, tmp_path: Path
) -> None:
    upgrade(own_postgres.create_database(DATABASE))
    dsn = own_postgres.dsn(DATABASE)
    with Pipeline(dsn, kafka.bootstrap_servers, topic_prefix, tmp_path) as pipeline:
        start(pipeline)
        with pipeline.load(41, sessions_per_second=10):
            go_on(pipeline, lambda: pipeline.batches() >= 2, "batches")
            with closing(psycopg.connect(dsn)) as blocker:
                blocker.execute("LOCK TABLE outbox.session_output IN SHARE MODE")
                pipeline.wait_until(
                    lambda: pipeline.ask(
                        "SELECT FROM pg_stat_activity WHERE application_name = 'spark-job'"
                        " AND wait_event_type = 'Lock' AND query LIKE 'COPY%%'"
                    ),
                    "a batch that copies its rows",
                    timeout_s=TIMEOUT_S,
                    alive=(pipeline.job,),
                )
                own_postgres.kill()
            own_postgres.start()
            pipeline.connect()
            batches = pipeline.batches()
            go_on(pipeline, lambda: pipeline.batches() >= batches + 2, "batches after the restart")

            with pipeline.held_up_batch():
                batches = pipeline.batches()
                cut = pipeline.ask(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE application_name = 'spark-job' AND wait_event_type = 'Lock'"
                )
                assert cut == [(True,)]
            go_on(pipeline, lambda: pipeline.batches() >= batches + 2, "batches after the cut")
        finish(pipeline)


@pytest.mark.guarantee(37, 171)
@pytest.mark.faults
@pytest.mark.timeout(2_400)
def test_a_disk_that_runs_full_stops_the_outbox_and_room_lets_both_services_continue(
    kafka: KafkaServer, topic_prefix: str, tmp_path: Path
) -> None:
    server = PostgresOnSmallDisk(tmp_path / "postgres", DISK_MEGABYTES)
    try:
        server.start()
        dsn = server.create(DATABASE)
        upgrade(dsn)
        with Pipeline(dsn, kafka.bootstrap_servers, topic_prefix, tmp_path) as pipeline:
            start(pipeline)
            with pipeline.load(42, sessions_per_second=10):
                go_on(pipeline, lambda: pipeline.batches() >= 2, "batches")
                server.fill()
                pipeline.wait_until(
                    lambda: "the disk of Postgres is full" in pipeline.job.log(),
                    "an error that names the disk",
                    timeout_s=TIMEOUT_S,
                )
                stuck = pipeline.batches()
                server.make_room()
                go_on(pipeline, lambda: pipeline.batches() >= stuck + 2, "batches with room")
            finish(pipeline)
    finally:
        server.destroy()


def start(pipeline: Pipeline) -> None:
    pipeline.job.start()
    pipeline.publisher.start()


def finish(pipeline: Pipeline) -> None:
    """Let both services deal with everything, stop them, and look at all of it."""
    expected = pipeline.expectation()
    pipeline.complete(expected)
    pipeline.stop()
    pipeline.assert_exactly_once(expected)
    assert pipeline.generations() == [(1, "first", 0)]
