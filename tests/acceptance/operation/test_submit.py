"""The job under spark-submit, whose options count: here without a cluster (tests/faults/spark_job/test_cluster.py has one)."""

import json
from pathlib import Path

from devstack.kafka import KafkaServer
from tests.support.pipeline.options import Options
from tests.support.pipeline.pipeline import Pipeline
from tests.support.pipeline.submit import spark_submit, stop_submitted


def test_a_submitted_job_has_spark_submits_options_and_every_output_arrives_once(
    database: str, kafka: KafkaServer, topic_prefix: str, tmp_path: Path
) -> None:
    events = tmp_path / "events"
    events.mkdir()
    own = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.sql.session.timeZone": "CET",
    }
    options: Options = {"job": {"spark_options": own}}
    with Pipeline(database, kafka.bootstrap_servers, topic_prefix, tmp_path, options=options) as pipeline:
        # The settings say local[2].
        pipeline.job.launcher = spark_submit(
            tmp_path,
            *("--master", "local[1]"),
            *("--driver-memory", "1g"),
            *("--conf", "spark.sql.session.timeZone=EST"),
        )
        pipeline.feed(41, sessions=40)
        pipeline.publisher.start()
        pipeline.job.start()
        expected = pipeline.expectation()
        pipeline.complete(expected)
        assert "master=local[1]" in pipeline.job.log()
        assert "name=sessions" in pipeline.job.log()
        stop_submitted(pipeline)
        pipeline.assert_exactly_once(expected)
    used = spark_properties(events)
    assert used["spark.sql.session.timeZone"] == "EST", "spark-submit's option wins"
    assert used["spark.eventLog.compress"] == "false", "the settings' option counts"
    assert used["spark.sql.adaptive.enabled"] == "false", "ours counts"
    assert used["spark.driver.host"] == "127.0.0.1"


def spark_properties(events: Path) -> dict[str, str]:
    """What Spark was started with, by its event log."""
    (log,) = (path for path in events.rglob("*") if path.is_file() and path.name.startswith("events"))
    lines = map(json.loads, log.read_text("utf-8").splitlines())
    *_, told = (line for line in lines if line["Event"] == "SparkListenerEnvironmentUpdate")
    properties: dict[str, str] = told["Spark Properties"]
    return properties
