"""The jars of Kafka Connect and of Debezium are pinned, and fit each other."""

from importlib.resources import files

import pytest

from spark_job.spark.jars import Jar, parse_lock


def jars(name: str) -> dict[str, Jar]:
    text = (files("benchmarks.peers.debezium") / name).read_text("utf-8")
    return {jar.coordinate.rpartition(":")[0]: jar for jar in parse_lock(text, source=name)}


@pytest.mark.parametrize("artifact", ["connect-api", "kafka-clients"])
def test_debezium_was_built_against_the_connect_that_runs_it(artifact: str) -> None:
    name = f"org.apache.kafka:{artifact}"
    assert jars("connector.lock")[name] == jars("connect.lock")[name]


def test_debezium_is_one_version() -> None:
    versions = {
        jar.coordinate.rpartition(":")[2]
        for name, jar in jars("connector.lock").items()
        if name.startswith("io.debezium")
    }
    assert len(versions) == 1
