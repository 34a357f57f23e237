"""`spark-job prepare`, as people run it, makes an archive that the JVM of the next start maps."""

import subprocess
import sys
from pathlib import Path

from spark_job.spark import class_archive
from spark_job.spark.jars import java_executable
from tests.support.processes.environment import without_settings

_START = """
import sys
from service.settings import JobSettings
from spark_job.spark.session import start_session, stop_session
from spark_job.spark.work_folder import WorkFolder

folder = WorkFolder()
options = {"spark.driver.extraJavaOptions": f"-Xlog:class+load:file={sys.argv[1]}"}
stop_session(start_session(JobSettings(cache=str(folder.path), spark_options=options), folder))
folder.remove()
"""


def test_a_start_after_prepare_maps_sparks_classes_instead_of_loading_them(tmp_path: Path) -> None:
    prepared = run("-m", "spark_job", "prepare")
    assert str(class_archive.archive(java_executable())) in prepared.stderr
    assert run("-m", "spark_job", "prepare").stderr.startswith("The archive of classes is there")
    loaded = tmp_path / "loaded"
    run("-c", _START, str(loaded))
    text = loaded.read_text("utf-8")
    lines = [line for line in text.splitlines() if " org.apache.spark." in line and "$$Lambda" not in line]
    mapped = [line for line in lines if "shared objects file (top)" in line]
    assert len(mapped) > 1_000
    assert len(mapped) > 0.9 * len(lines)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env=without_settings(),
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
