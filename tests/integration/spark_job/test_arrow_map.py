"""A held `mapInArrow` gives what pyspark's own gives, fails as it does, and asks the JVM for no class by name again."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes.environment import without_settings

SCRIPT = """
import json, sys
import pyarrow as pa
from py4j.java_gateway import JVMView
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from service.settings import JobSettings
from spark_job.failures.spark_text import text_of
from spark_job.spark.session import start_session, stop_session
from spark_job.spark.work_folder import WorkFolder
from spark_job.stream.arrow_map import ArrowMap

DDL = "`n` bigint, `text` string, `raw` binary"
SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string()), ("raw", pa.binary())])

class Task:
    def __init__(self, factor):
        self.factor = factor
    def __call__(self, batches):
        for batch in batches:
            n = [value * self.factor for value in batch.column(0).to_pylist()]
            if self.factor == 7:
                raise ValueError("seven")
            if self.factor:
                yield pa.record_batch([n, [str(each) for each in n], [bytes(each % 5) for each in n]], schema=SCHEMA)

class Names:
    def __init__(self):
        self.asked = []
        self.get = JVMView.__getattr__
        JVMView.__getattr__ = self
    def __get__(self, view, _kind):
        return lambda name: self.asked.append(name) or self.get(view, name)

def failure(action):
    try:
        action()
    except (PySparkException, Py4JError) as error:
        return [type(error).__name__, "ValueError: seven" in text_of(error)]

folder = WorkFolder()
spark = start_session(JobSettings(cache=sys.argv[1], master="local[2]", driver_memory="1g"), folder)
frame = spark.range(0, 50, 1, 4).select("id")
held = ArrowMap(spark, frame.columns, DDL, SCHEMA)
same = []
for factor in (1, 2, 0):
    expected = frame.mapInArrow(Task(factor), DDL).toArrow()
    found = held.run(frame, Task(factor))
    same.append([found.schema == expected.schema == SCHEMA, found.to_pylist() == expected.to_pylist()])
names = Names()
held.run(frame, Task(3))
print(json.dumps({
    "same": same,
    "names": list(names.asked),
    "failure": failure(lambda: held.run(frame, Task(7))),
    "expected": failure(lambda: frame.mapInArrow(Task(7), DDL).toArrow()),
    "asked_by_pyspark": len(names.asked),
}))
stop_session(spark)
folder.remove()
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the script found, in a JVM of its own."""
    folder: Path = tmp_path_factory.mktemp("held")
    command = [sys.executable, "-c", SCRIPT, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, env=without_settings())
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_rows_and_schema_are_those_of_pyspark_also_where_there_are_none(told: dict[str, Any]) -> None:
    assert told["same"] == [[True, True]] * 3


def test_no_class_is_looked_up_by_name_again(told: dict[str, Any]) -> None:
    assert told["names"] == []
    assert told["asked_by_pyspark"] > 0  # so that the names would have been seen


def test_a_task_that_fails_is_told_as_by_pyspark(told: dict[str, Any]) -> None:
    assert told["failure"] == told["expected"]
    assert told["failure"][1]
