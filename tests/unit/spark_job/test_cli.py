"""The command line tells about itself without what a job needs to run."""

import subprocess
import sys

HEAVY = ("pyspark", "pyarrow", "numpy", "pandas", "confluent_kafka")


def test_help_and_completion_need_neither_spark_nor_arrow_nor_kafkas_client() -> None:
    look = f"import sys, spark_job.cli; print(*sorted({set(HEAVY)!r} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == ""
