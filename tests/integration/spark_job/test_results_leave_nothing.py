"""What each batch hands over leaves nothing in the JVM and on the disk, however large what its tasks are told is."""

import json
import os
import subprocess
import sys
from pathlib import Path

BATCHES = 20
# Paths of files that the JVM deletes when it ends (java.io.DeleteOnExitHook), and files in the process' folder, before and after.
SCRIPT = """
import json, sys
from pathlib import Path
import pyarrow as pa
from service.settings import JobSettings
from spark_job.spark.session import start_session, stop_session
from spark_job.spark.work_folder import WorkFolder
from spark_job.stream.arrow_map import ArrowMap

class Task:
    def __init__(self, told):
        self.told = told
    def __call__(self, batches):
        yield from batches

folder = WorkFolder()
spark = start_session(JobSettings(cache=sys.argv[1], master="local[1]", driver_memory="1g"), folder)
held = ArrowMap(spark, ["id"], "id long", pa.schema([("id", pa.int64())]))
hook = spark.sparkContext._jvm.java.lang.Class.forName("java.io.DeleteOnExitHook").getDeclaredField("files")
hook.setAccessible(True)

def batches(number):
    for _ in range(number):
        held.run(spark.range(0, 10, 1, 1), Task(bytes(2_000_000)))
    files = [path for path in folder.path.rglob("*") if path.is_file() or path.is_socket()]
    return hook.get(None).size(), len(files)

print(json.dumps([batches(3), batches(int(sys.argv[2]))]))
stop_session(spark)
folder.remove()
"""


def test_a_batch_leaves_no_path_in_the_jvm_and_no_file(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(tmp_path), str(BATCHES)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=500, env={**os.environ, "TMPDIR": str(tmp_path)}
    )
    assert done.returncode == 0, done.stderr
    (paths_before, files_before), (paths_after, files_after) = json.loads(done.stdout.splitlines()[-1])
    assert paths_after - paths_before < BATCHES / 2
    assert files_after - files_before < BATCHES / 2
