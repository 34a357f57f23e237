"""The fingerprint of a task's code is one of every module that a task imports and that may change its results."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from spark_job.assembly import code_fingerprint
from spark_job.assembly.code_fingerprint import task_code_fingerprint
from tests.support.paths import ROOT

PACKAGES = ("spark_job", "service", "contract")
OF_NO_RESULT = (
    # Docstrings and names.
    "spark_job/__init__.py",
    "service/__init__.py",
    "service/kafka/__init__.py",
    # How a task fails, and what it says then.
    "service/errors.py",
    "service/private_file.py",
    "service/kafka/rights.py",
    "service/lifecycle/",
    # How a client connects.
    "service/kafka/renewable_client.py",
    "service/logins/",
)
"""Modules that a task imports, and folders of them, that need not be of the same version everywhere."""
LIST = (
    "import sys, spark_job.assembly.task\n"
    f"print(*(module.__file__ for name, module in sys.modules.items() if name.partition('.')[0] in {PACKAGES}), sep='\\n')"
)


@pytest.fixture(scope="module")
def imported() -> set[str]:
    """The modules that a new process imports with a task's, relative to ROOT."""
    command = [sys.executable, "-c", LIST]
    files = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    return {str(Path(file).relative_to(ROOT)) for file in files}


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The packages once more, of which the fingerprint is made."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(code_fingerprint, "files", lambda package: tmp_path / package)
    return tmp_path


@pytest.mark.guarantee(119)
def test_a_change_of_any_module_of_a_task_changes_the_fingerprint(imported: set[str], copy: Path) -> None:
    of_copy = task_code_fingerprint.__wrapped__
    assert of_copy() == task_code_fingerprint()
    (copy / "spark_job" / "sessions" / "notes.txt").write_text("no code")
    assert of_copy() == task_code_fingerprint()
    for module in imported:
        file = copy / module
        before = file.read_bytes()
        file.write_bytes(before + b"# edited\n")
        assert (of_copy() == task_code_fingerprint()) == module.startswith(OF_NO_RESULT), module
        file.write_bytes(before)


def test_the_modules_of_no_result_are_imported_by_a_task(imported: set[str]) -> None:
    assert all(any(module.startswith(each) for module in imported) for each in OF_NO_RESULT)
