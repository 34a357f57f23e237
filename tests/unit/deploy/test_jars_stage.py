"""The image's stage that resolves the jars has each module that this needs, and no others: it is built again when one of them changes."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
_COPY = re.compile(r"^COPY (?P<files>[^\n]+) /tmp/jars/(?P<folder>\S+)/$", re.M)


def test_what_resolves_the_jars_can_be_imported_out_of_the_files_that_the_stage_copies(
    tmp_path: Path,
) -> None:
    copied = list(_COPY.finditer((ROOT / "spark_job" / "Dockerfile").read_text()))
    assert len(copied) >= 3
    for each in copied:
        folder = tmp_path / each["folder"]
        folder.mkdir(parents=True)
        for name in each["files"].split():
            shutil.copy(ROOT / name, folder)
    done = subprocess.run(
        [sys.executable, "-c", "import spark_job.spark.jars as j; print(j.__file__)"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(tmp_path / "spark_job" / "spark" / "jars.py")
