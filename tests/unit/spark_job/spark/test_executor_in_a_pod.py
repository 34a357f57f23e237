"""An executor in a pod begins with what Spark describes by variables."""

import pytest

from spark_job.spark.executor_in_a_pod import command

OF_SPARK = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.0.0.1:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "1",
    "SPARK_EXECUTOR_MEMORY": "512m",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.2",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "spark-job-exec-3",
}


def test_options_keep_their_order_and_their_spaces() -> None:
    options = {f"SPARK_JAVA_OPT_{number}": f"-Dn={number} x" for number in (10, 2, 0)}
    line = command(OF_SPARK | options | {"SPARK_JAVA_OPTS": "-Dno"})
    assert line[:6] == ["java", "-Dn=0 x", "-Dn=2 x", "-Dn=10 x", "-Xms512m", "-Xmx512m"]
    assert line[line.index("--driver-url") :] == [
        *("--driver-url", OF_SPARK["SPARK_DRIVER_URL"], "--executor-id", "3", "--cores", "1"),
        *("--app-id", "spark-1", "--hostname", "10.0.0.2", "--resourceProfileId", "0"),
        *("--podName", "spark-job-exec-3"),
    ]


def test_without_the_variables_the_missing_one_is_named() -> None:
    with pytest.raises(KeyError, match="SPARK_DRIVER_URL"):
        command({name: value for name, value in OF_SPARK.items() if name != "SPARK_DRIVER_URL"})
