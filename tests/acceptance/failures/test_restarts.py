"""Failures that pass by themselves end neither the process nor exactly-once; others end it with their own code."""

import json
import signal
import time
from pathlib import Path

import pytest

from devstack.kafka import Kafka, KafkaServer
from devstack.postgres import Postgres
from service.lifecycle.fault_points import Action, Fault
from tests.support.pipeline.pipeline import Pipeline

NOBODY = "postgresql://127.0.0.1:1/outbox"
KAFKA_IS_DOWN_S = 15.0
PATIENCE_S = 400.0
QUICK_TO_NOTICE = {
    "OUTBOX_KAFKA__REQUEST_TIMEOUT_S": "3",
    "OUTBOX_KAFKA__JAVA_OPTIONS": json.dumps(
        {"request.timeout.ms": "2000", "default.api.timeout.ms": "4000"}
    ),
}


@pytest.mark.guarantee(24)
def test_a_killed_jvm_is_replaced_in_the_same_process(pipeline: Pipeline) -> None:
    job = pipeline.job
    pipeline.publisher.start()
    with pipeline.load(21, sessions_per_second=15):
        job.start(**pipeline.armed)
        pid = job.pid
        pipeline.more_batches(2)
        with pipeline.held_at("task.after_assembly"):
            job.started("java").kill()
        pipeline.more_batches(2)

        with pipeline.held_up_batch():
            # All its rows are in Postgres' open transaction, and Spark is not needed any more: that commits.
            job.started("java").kill()
        pipeline.more_batches(2)
    assert job.pid == pid
    assert pipeline.restarts() == ["SparkLostError", "SparkLostError"]
    assert "signal 9" in job.log()
    pipeline.finish()
    assert pipeline.restored() == ["fresh", "position", "position"]


@pytest.mark.faults
def test_a_connection_cut_in_the_middle_of_the_transaction_restarts_the_query_and_keeps_spark(
    pipeline: Pipeline,
) -> None:
    job = pipeline.job
    pipeline.publisher.start()
    with pipeline.load(22, sessions_per_second=15):
        job.start()
        pipeline.more_batches(2)
        java = job.started("java").pid
        for _ in range(2):
            with pipeline.held_up_batch() as backend:
                batches = pipeline.batches()
                assert pipeline.ask("SELECT pg_terminate_backend(%s, 30000)", backend) == [(True,)]
                assert pipeline.batches() == batches
            pipeline.more_batches(2)
        assert job.started("java").pid == java
    assert pipeline.restarts() == ["UnavailableError", "UnavailableError"]
    pipeline.finish()


@pytest.mark.faults
def test_a_commit_that_fails_is_noticed_also_where_no_further_batch_follows(pipeline: Pipeline) -> None:
    """It runs beside Spark, which has nothing to do then."""
    pipeline.feed(27, sessions=20)
    pipeline.publisher.start()
    pipeline.faults.write(Fault("sink.after_ledger", Action.RAISE))
    pipeline.job.start(**pipeline.armed, OUTBOX_JOB__MAX_EVENTS_PER_BATCH="100000")
    pipeline.finish()
    assert pipeline.restarts() == ["InjectedFaultError"]
    assert pipeline.restored() == ["fresh", "position"]


@pytest.mark.guarantee(36)
@pytest.mark.faults
@pytest.mark.timeout(1_200)
def test_a_restarted_postgres_costs_nothing(
    own_postgres: Postgres, kafka: KafkaServer, topic_prefix: str, tmp_path: Path
) -> None:
    with Pipeline(own_postgres.dsn(), kafka.bootstrap_servers, topic_prefix, tmp_path) as pipeline:
        job = pipeline.job
        pipeline.publisher.start()
        with pipeline.load(23, sessions_per_second=15):
            job.start()
            pipeline.more_batches(2)
            own_postgres.stop()
            pipeline.wait_until(
                lambda: len(pipeline.restarts()) >= 2,
                "attempts without Postgres",
                timeout_s=PATIENCE_S,
                alive=(job,),
            )
            own_postgres.start()
            pipeline.connect()
            pipeline.more_batches(2)
        assert set(pipeline.restarts()) == {"UnavailableError"}
        pipeline.finish()


@pytest.mark.guarantee(35)
@pytest.mark.faults
@pytest.mark.timeout(1_200)
def test_the_job_waits_for_a_kafka_that_is_down_and_continues_by_itself(
    database: str, own_kafka: Kafka, topic_prefix: str, tmp_path: Path
) -> None:
    with Pipeline(database, own_kafka.bootstrap_servers, topic_prefix, tmp_path) as pipeline:
        job = pipeline.job
        pipeline.feed(24, sessions=500, number=2)
        expected = pipeline.expectation()
        pipeline.publisher.start()
        job.start(**QUICK_TO_NOTICE, OUTBOX_JOB__MAX_EVENTS_PER_BATCH="300")
        pipeline.more_batches(3)
        own_kafka.stop()
        down_since = time.monotonic()
        pipeline.wait_until(
            lambda: len(pipeline.restarts()) >= 2,
            "attempts without Kafka",
            timeout_s=PATIENCE_S,
            alive=(job,),
        )
        pipeline.wait_until(
            lambda: time.monotonic() > down_since + KAFKA_IS_DOWN_S, "a long outage", alive=(job,)
        )
        batches = pipeline.batches()
        own_kafka.start()
        pipeline.complete(expected)
        assert pipeline.batches() > batches
        assert set(pipeline.restarts()) == {"UnavailableError"}
        pipeline.stop()
        pipeline.assert_exactly_once(expected)


@pytest.mark.guarantee(116)
def test_a_strategy_that_gives_up_ends_the_process_with_the_code_of_its_last_failure(
    pipeline: Pipeline,
) -> None:
    job = pipeline.job
    job.start(
        OUTBOX_POSTGRES__DSN=NOBODY,
        OUTBOX_RESTART__ATTEMPTS="2",
        OUTBOX_RESTART__DELAY_S="0.1",
    )
    assert job.wait() == 6, job.tail()
    assert pipeline.restarts() == ["UnavailableError", "UnavailableError"]
    assert "restarts in succession: 2 ([restart] attempts)" in job.log()
    assert "spark-job: Postgres at 127.0.0.1:1/outbox cannot be used" in job.log()


def test_a_stop_reaches_a_process_that_waits_for_its_next_attempt(pipeline: Pipeline) -> None:
    job = pipeline.job
    with pipeline.load(27, sessions_per_second=15):
        job.start(OUTBOX_RESTART__DELAY_S="10")
        pipeline.more_batches(1)
        pipeline.ask("SELECT pg_terminate_backend(backend_pid) FROM outbox.writer")
        pipeline.wait_until(lambda: "job_restarting" in job.log(), "the failed attempt", alive=(job,))
    stopped = pipeline.command_json("stop", "--savepoint", "end")
    assert stopped["stopped"]
    assert stopped["text"] == "the job has stopped between two attempts"
    assert job.wait(PATIENCE_S) == 0, job.tail()
    assert stopped["savepoint"]["batch"] == pipeline.batches()
    assert pipeline.owner() is None


@pytest.mark.guarantee(121)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_does_not_wait_for_the_next_attempt(pipeline: Pipeline, number: signal.Signals) -> None:
    job = pipeline.job
    job.start(OUTBOX_POSTGRES__DSN=NOBODY, OUTBOX_RESTART__DELAY_S="3600", OUTBOX_RESTART__MAX_DELAY_S="3600")
    pipeline.wait_until(lambda: pipeline.restarts(), "the wait for the next attempt", alive=(job,))
    assert job.terminate(number) == 0, job.tail()
