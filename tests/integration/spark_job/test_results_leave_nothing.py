"""What each batch hands over leaves nothing in the JVM and on the disk, however large what its tasks are told is."""

import json
import os
import subprocess
import sys
import tempfile

BATCHES = 20
# Sockets in the process' folder, paths that the JVM deletes when it ends (java.io.DeleteOnExitHook), and files in that folder; before and
# after.
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
    found = list(folder.path.rglob("*"))
    sockets = sum(path.is_socket() for path in found)
    return sockets, hook.get(None).size(), sockets + sum(path.is_file() for path in found)

print(json.dumps([batches(3), batches(int(sys.argv[2]))]))
stop_session(spark)
folder.remove()
"""


def test_a_batch_leaves_no_path_in_the_jvm_and_no_file() -> None:
    # Its path is short enough for sockets.
    with tempfile.TemporaryDirectory(prefix="outbox-") as folder:
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, folder, str(BATCHES)],
            capture_output=True,
            text=True,
            timeout=500,
            env={**os.environ, "TMPDIR": folder},
        )
    assert done.returncode == 0, done.stderr
    before, after = json.loads(done.stdout.splitlines()[-1])
    (sockets, paths_before, files_before), (_, paths_after, files_after) = before, after
    assert sockets > 0, "Spark reaches its workers without Unix sockets: no result could have left a path"
    assert paths_after - paths_before < BATCHES / 2, f"{before}\n{after}"
    assert files_after - files_before < BATCHES / 2, f"{before}\n{after}"
