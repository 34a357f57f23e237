"""The thread in which the JVM runs a query calls this process. What serves it here ends when the query's leftovers are released."""

import subprocess
import sys
from pathlib import Path

from tests.support.held.figures import ROOM, grown, measurements
from tests.support.processes.environment import without_settings

QUERIES = 10
# A JVM without Spark: threads that call once and end, as a query's does.
SCRIPT = """
import json, sys
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from pyspark import SparkContext
from pyspark.java_gateway import ensure_callback_server_started
from spark_job.spark import jvm
from spark_job.stream.query_leftovers import release_leftovers
from tests.support.held.figures import Held

class Call:
    def run(self):
        java.System.nanoTime()
    class Java:
        implements = ["java.lang.Runnable"]

jvm.start()
ensure_callback_server_started(SparkContext._gateway)
java = SparkContext._jvm.java.lang
session = SimpleNamespace(sparkContext=SimpleNamespace(_jvm=SparkContext._jvm, master="none"))

def queries(number, after, end):
    for _ in range(number):
        thread = SparkContext._jvm.java.util.concurrent.Executors.newSingleThreadExecutor()
        thread.submit(Call()).get()
        thread.shutdown()
        end(session)
    print(json.dumps({"after": after} | asdict(Held.now(session, Path(sys.argv[1])))))

number = int(sys.argv[2])
queries(2, "some", release_leftovers)
queries(number, "kept", lambda session: None)
queries(number, "released", release_leftovers)
jvm.forget()
"""


def test_a_query_whose_leftovers_are_released_leaves_no_thread_and_no_connection(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(tmp_path), str(QUERIES)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=without_settings())
    assert done.returncode == 0, done.stderr
    some, kept, released = measurements(done.stdout).values()
    for figure in ("driver_threads", "driver_descriptors", "jvm_descriptors"):
        assert getattr(kept, figure) - getattr(some, figure) >= QUERIES > getattr(ROOM, figure)
    assert not grown(some, released)
