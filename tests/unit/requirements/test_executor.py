"""Executors of a cluster have what requirements/executor.txt pins, and nothing else: a task imports no more (docs/cluster.md)."""

import re
import subprocess
import sys
import tomllib

from tests.support.paths import ROOT

# What needs an extra is imported where it is used.
_TASK = ("spark_job.assembly.task", "spark_job.assembly.record_readers")
_BLOCKED = """
import importlib, sys
absent, modules = sys.argv[1].split(","), sys.argv[2].split(",")
for name in absent:
    sys.modules[name] = None
for name in modules:
    importlib.import_module(name)
"""


def test_a_task_imports_only_what_executors_have() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    have = set(re.findall(r"^([\w-]+)==", (ROOT / "requirements" / "executor.txt").read_text("utf-8"), re.M))
    needed = {re.split(r"[\[~=]", each)[0] for each in project["dependencies"]}
    absent = ",".join(sorted(name.replace("-", "_") for name in needed - have))
    assert "psycopg" in absent
    done = subprocess.run(
        [sys.executable, "-c", _BLOCKED, absent, ",".join(_TASK)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
