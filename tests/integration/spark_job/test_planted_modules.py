"""Spark's Python workers take the transform from the working directory, and nothing that another user has planted there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

# `sched`: a module of Python that neither Spark nor the job imports.
SCRIPT = """
import sys
from service.settings import JobSettings
from spark_job.outputs import transform
from spark_job.outputs.settings import TransformOf
from spark_job.spark.session import start_session, stop_session
from spark_job.spark.work_folder import WorkFolder

function = "own_shop:transform"
of = TransformOf(function, transform.fingerprint(transform.load(function)), False, 1_000)

def found(_rows):
    import sched
    transform.load_for_run(of)
    yield sched.__file__

folder = WorkFolder()
spark = start_session(JobSettings(cache=sys.argv[1], master="local[1]", driver_memory="1g"), folder)
print(*spark.sparkContext.parallelize([1], 1).mapPartitions(found).collect())
stop_session(spark)
folder.remove()
"""


@pytest.mark.parametrize("where", ["working directory", "PYTHONPATH"])
def test_a_worker_finds_the_transform_and_no_planted_module(tmp_path: Path, where: str) -> None:
    here, installed = tmp_path / "here", tmp_path / "installed"
    here.mkdir()
    installed.mkdir()
    folder = here if where == "working directory" else installed
    (folder / "own_shop.py").write_text("def transform(session):\n    return []\n")
    if folder is installed:
        here.chmod(0o1777)
        (here / "sched.py").touch()
    script = tmp_path / "run.py"
    script.write_text(SCRIPT)
    path = os.pathsep.join([str(ROOT), str(installed)])
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "cache")],
        cwd=here,
        capture_output=True,
        text=True,
        timeout=500,
        env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr
    assert not Path(done.stdout.splitlines()[-1]).is_relative_to(tmp_path)
