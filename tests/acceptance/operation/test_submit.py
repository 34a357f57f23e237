"""The job under spark-submit, whose options count: here without a cluster (tests/faults/spark_job/test_cluster.py has one)."""

from pathlib import Path

from devstack.kafka import KafkaServer
from tests.support.pipeline.pipeline import Pipeline
from tests.support.pipeline.submit import spark_submit, stop_submitted


def test_a_submitted_job_has_spark_submits_options_and_every_output_arrives_once(
    database: str, kafka: KafkaServer, topic_prefix: str, tmp_path: Path
) -> None:
    with Pipeline(database, kafka.bootstrap_servers, topic_prefix, tmp_path) as pipeline:
        # The settings say local[2].
        pipeline.job.launcher = spark_submit(tmp_path, "--master", "local[1]", "--driver-memory", "1g")
        pipeline.feed(41, sessions=40)
        pipeline.publisher.start()
        pipeline.job.start()
        expected = pipeline.expectation()
        pipeline.complete(expected)
        assert "master=local[1]" in pipeline.job.log()
        assert "name=sessions" in pipeline.job.log()
        stop_submitted(pipeline)
        pipeline.assert_exactly_once(expected)
