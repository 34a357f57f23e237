"""What the JVM writes to stderr reaches the job's own, but for what every start says."""

import os
from pathlib import Path

from spark_job.spark import jvm


def test_everything_but_the_noise_is_passed_on(tmp_path: Path) -> None:
    said = tmp_path / "said"
    reading, writing = os.pipe()
    with said.open("wb") as out:
        os.write(
            writing,
            b"Picked up JAVA_TOOL_OPTIONS: -Xint\nWARNING: Using incubator modules: jdk.incubator.vector\n"
            b"WARNING: something else\n2026-01-01 spark ERROR X: it failed\nno line feed",
        )
        os.close(writing)
        jvm.pass_on(reading, out.fileno())
    assert said.read_bytes() == b"WARNING: something else\n2026-01-01 spark ERROR X: it failed\nno line feed"
