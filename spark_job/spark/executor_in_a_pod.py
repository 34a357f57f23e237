"""Becomes an executor of Spark in a pod of Kubernetes, as the entry point of Spark's own image does. `python -m` starts it.

Spark describes the executor by variables (its BasicExecutorFeatureStep).
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path

import pyspark

_JAVA_OPTION = re.compile(r"SPARK_JAVA_OPT_(\d+)")
_BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"


def command(variables: Mapping[str, str]) -> list[str]:
    """Return the command line. Raises KeyError without Spark's variables."""
    options = sorted(
        (int(found[1]), value) for name, value in variables.items() if (found := _JAVA_OPTION.fullmatch(name))
    )
    memory = variables["SPARK_EXECUTOR_MEMORY"]
    return [
        "java",
        *(option for _, option in options),
        f"-Xms{memory}",
        f"-Xmx{memory}",
        *("-cp", f"{Path(pyspark.__file__).parent}/jars/*", _BACKEND),
        *("--driver-url", variables["SPARK_DRIVER_URL"]),
        *("--executor-id", variables["SPARK_EXECUTOR_ID"]),
        *("--cores", variables["SPARK_EXECUTOR_CORES"]),
        *("--app-id", variables["SPARK_APPLICATION_ID"]),
        *("--hostname", variables["SPARK_EXECUTOR_POD_IP"]),
        *("--resourceProfileId", variables["SPARK_RESOURCE_PROFILE_ID"]),
        *("--podName", variables["SPARK_EXECUTOR_POD_NAME"]),
    ]


def main() -> None:
    """Replace this process by the executor's JVM."""
    arguments = command(os.environ)
    os.execvp(arguments[0], arguments)


if __name__ == "__main__":
    main()
